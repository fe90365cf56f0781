#include "core/elimination.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusionopt {

namespace {

using Node = std::int32_t;

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// A node stands for weight_ nodes that have become alike: 0 when it stands for none, as it was eliminated or
// joined another; negative while it is in the element being made. Its list, in lists_, is n_elements_
// elements, then the nodes that no element ties to it. The list of an element is its nodes.
class Quotient {
  public:
    Quotient(Index n, const Node* tail, const Node* head, Index n_edges)
        : n_(n),
          start_(at(n), 0),
          length_(at(n), 0),
          n_elements_(at(n), 0),
          weight_(at(n), 1),
          degree_(at(n), 0),
          mark_(at(n), 1),
          parent_(at(n), -1),
          next_(at(n), -1),
          before_(at(n), -1),
          by_degree_(at(n) + 1, -1),
          by_hash_(at(n), -1),
          hash_(at(n), 0),
          follows_(at(n), -1),
          last_(at(n)) {
        for (Index e = 0; e < n_edges; ++e) {
            if (tail[e] == head[e]) continue;
            ++length_[at(tail[e])];
            ++length_[at(head[e])];
        }
        for (Index i = 0; i < n; ++i) {
            start_[at(i)] = end_;
            end_ += length_[at(i)];
            length_[at(i)] = 0;
            last_[at(i)] = static_cast<Node>(i);
        }
        lists_.resize(at(2 * end_ + n));
        for (Index e = 0; e < n_edges; ++e) {
            const Node i = tail[e], j = head[e];
            if (i == j) continue;
            lists_[at(start_[at(i)] + length_[at(i)]++)] = j;
            lists_[at(start_[at(j)] + length_[at(j)]++)] = i;
        }
        // Nodes of very many neighbours would be looked at again and again: they are left out until the end.
        const Index many = std::max<Index>(16, static_cast<Index>(10.0 * std::sqrt(static_cast<double>(n))));
        for (Index i = 0; i < n; ++i) {
            if (length_[at(i)] <= many) continue;
            if (count_distinct(i) <= many) continue;
            weight_[at(i)] = 0;
            crowded_.push_back(static_cast<Node>(i));
        }
        left_ = n - static_cast<Index>(crowded_.size());
        for (Index i = n - 1; i >= 0; --i) {
            if (weight_[at(i)] == 0) continue;
            length_[at(i)] = degree_[at(i)] = count_distinct(i);
            file(static_cast<Node>(i));
        }
    }

    bool run(double block, double max_cost, Elimination& found) {
        found = {};
        found.order.reserve(at(n_));
        found.first.push_back(0);
        double cost = 0.0;
        while (left_ > 0) {
            const Node pivot = take_least();
            make_element(pivot);
            measure_overlaps(pivot);
            Node columns = update_members(pivot);
            join_alike(pivot);
            file_members(pivot);
            weight_[at(pivot)] = columns;
            cost += front_cost(block * columns, block * (columns + degree_[at(pivot)]));
            if (cost > max_cost) return false;
            pivots_.push_back(pivot);
        }
        list_fronts(found);
        return true;
    }

  private:
    // Drops repeated and weightless nodes from the list of i.
    Node count_distinct(Index i) {
        ++tag_;
        Node* const list = lists_.data() + start_[at(i)];
        Node kept = 0;
        for (Node k = 0; k < length_[at(i)]; ++k) {
            Node& seen = mark_[at(list[k])];
            if (seen == tag_ || weight_[at(list[k])] == 0) continue;
            seen = tag_;
            list[kept++] = list[k];
        }
        length_[at(i)] = kept;
        return kept;
    }
    void file(Node i) {
        Node& top = by_degree_[at(degree_[at(i)])];
        next_[at(i)] = top;
        before_[at(i)] = -1;
        if (top >= 0) before_[at(top)] = i;
        top = i;
        least_ = std::min(least_, degree_[at(i)]);
    }
    void unfile(Node i) {
        const Node above = before_[at(i)], below = next_[at(i)];
        if (below >= 0) before_[at(below)] = above;
        (above >= 0 ? next_[at(above)] : by_degree_[at(degree_[at(i)])]) = below;
    }
    Node take_least() {
        while (by_degree_[at(least_)] < 0) ++least_;
        const Node pivot = by_degree_[at(least_)];
        unfile(pivot);
        left_ -= weight_[at(pivot)];
        return pivot;
    }
    // The pivot becomes the element of all that its elements and its own list tie together; these elements
    // are absorbed.
    void make_element(Node pivot) {
        const Index from = start_[at(pivot)];
        const Node n_elements = n_elements_[at(pivot)], length = length_[at(pivot)];
        Index most = length;
        for (Node k = 0; k < n_elements; ++k) most += length_[at(lists_[at(from + k)])];
        if (end_ + most > static_cast<Index>(lists_.size())) lists_.resize(at(2 * end_ + most));
        Node* const lists = lists_.data();
        const Index made = end_;
        Node size = 0;
        weight_[at(pivot)] = -weight_[at(pivot)];
        const auto take = [&](const Node* list, Node count) {
            for (Node k = 0; k < count; ++k) {
                const Node i = list[k], weight = weight_[at(i)];
                if (weight <= 0) continue;
                weight_[at(i)] = -weight;
                size += weight;
                unfile(i);
                lists[end_++] = i;
            }
        };
        for (Node k = 0; k < n_elements; ++k) {
            const Node e = lists[from + k];
            take(lists + start_[at(e)], length_[at(e)]);
            absorb(e, pivot);
        }
        take(lists + from + n_elements, length - n_elements);
        start_[at(pivot)] = made;
        length_[at(pivot)] = static_cast<Node>(end_ - made);
        degree_[at(pivot)] = size;
    }
    void absorb(Node e, Node into) {
        parent_[at(e)] = into;
        mark_[at(e)] = 0;
    }
    // mark_[e] - tag_ becomes the weight of the nodes of e outside the new element, for each element e that
    // shares a node with it.
    void measure_overlaps(Node pivot) {
        if (tag_ > std::numeric_limits<Node>::max() / 2 - 2 * static_cast<Node>(n_)) {
            for (Node& mark : mark_) mark = mark != 0;
            tag_ = 1;
        }
        tag_ += largest_ + 1;
        const Node* const lists = lists_.data();
        for (Index k = start_[at(pivot)]; k < end_; ++k) {
            const Node i = lists[k], weight = -weight_[at(i)];
            const Node* const list = lists + start_[at(i)];
            for (Node p = 0; p < n_elements_[at(i)]; ++p) {
                Node& mark = mark_[at(list[p])];
                if (mark >= tag_)
                    mark -= weight;
                else if (mark != 0)
                    mark = degree_[at(list[p])] + tag_ - weight;
            }
        }
        largest_ = std::max(largest_, degree_[at(pivot)]);
    }
    // Prunes the lists of the new element's nodes and bounds their degrees. Elements within the new one are
    // absorbed; nodes tied to nothing else are eliminated with the pivot. Returns the weight eliminated.
    Node update_members(Node pivot) {
        Node columns = -weight_[at(pivot)];
        Node* const lists = lists_.data();
        for (Index k = start_[at(pivot)]; k < end_; ++k) {
            const Node i = lists[k];
            Node* const list = lists + start_[at(i)];
            const Node n_elements = n_elements_[at(i)], length = length_[at(i)];
            Node kept = 0, degree = 0;
            std::uint32_t hash = 0;
            for (Node p = 0; p < n_elements; ++p) {
                const Node e = list[p], outside = mark_[at(e)] - tag_;
                if (mark_[at(e)] == 0) continue;
                if (outside == 0) {
                    absorb(e, pivot);
                    continue;
                }
                degree += outside;
                list[kept++] = e;
                hash += static_cast<std::uint32_t>(e);
            }
            const Node elements_kept = kept;
            for (Node p = n_elements; p < length; ++p) {
                const Node j = list[p], weight = weight_[at(j)];
                if (weight <= 0) continue;
                degree += weight;
                list[kept++] = j;
                hash += static_cast<std::uint32_t>(j);
            }
            if (kept == 0) {
                const Node weight = -weight_[at(i)];
                columns += weight;
                degree_[at(pivot)] -= weight;
                left_ -= weight;
                join(i, pivot);
                continue;
            }
            degree_[at(i)] = std::min(degree_[at(i)], degree);
            // The new element comes first: one entry at least was dropped for it.
            list[kept] = list[elements_kept];
            list[elements_kept] = list[0];
            list[0] = pivot;
            n_elements_[at(i)] = elements_kept + 1;
            length_[at(i)] = kept + 1;
            hash_[at(i)] = static_cast<Node>(hash % static_cast<std::uint32_t>(n_));
            Node& top = by_hash_[at(hash_[at(i)])];
            next_[at(i)] = top;
            top = i;
        }
        return columns;
    }
    void join(Node i, Node to) {
        weight_[at(i)] = 0;
        follows_[at(last_[at(to)])] = i;
        last_[at(to)] = last_[at(i)];
    }
    // Nodes of the new element with the same elements and the same neighbours become one.
    void join_alike(Node pivot) {
        // mark_ of elements stays below this, so that it may mark nodes and elements alike.
        tag_ += largest_ + 1;
        const Node* const lists = lists_.data();
        for (Index k = start_[at(pivot)]; k < end_; ++k) {
            if (weight_[at(lists[k])] == 0) continue;
            Node& top = by_hash_[at(hash_[at(lists[k])])];
            Node i = top;
            top = -1;
            for (; i >= 0 && next_[at(i)] >= 0; i = next_[at(i)]) {
                const Node length = length_[at(i)];
                const Node* const list = lists + start_[at(i)];
                for (Node p = 1; p < length; ++p) mark_[at(list[p])] = tag_;
                Node previous = i;
                for (Node j = next_[at(i)]; j >= 0; j = next_[at(j)]) {
                    const Node* const other = lists + start_[at(j)];
                    bool alike = length_[at(j)] == length && n_elements_[at(j)] == n_elements_[at(i)];
                    for (Node p = 1; alike && p < length; ++p) alike = mark_[at(other[p])] == tag_;
                    if (alike) {
                        weight_[at(i)] += weight_[at(j)];
                        join(j, i);
                        next_[at(previous)] = next_[at(j)];
                    } else {
                        previous = j;
                    }
                }
                ++tag_;
            }
        }
    }
    void file_members(Node pivot) {
        Node* const lists = lists_.data();
        Index kept = start_[at(pivot)];
        for (Index k = kept; k < end_; ++k) {
            const Node i = lists[k], weight = -weight_[at(i)];
            if (weight <= 0) continue;
            weight_[at(i)] = weight;
            const Index degree = std::min<Index>(degree_[at(i)] + degree_[at(pivot)], left_) - weight;
            degree_[at(i)] = static_cast<Node>(degree);
            file(i);
            lists[kept++] = i;
        }
        end_ = kept;
        length_[at(pivot)] = static_cast<Node>(kept - start_[at(pivot)]);
    }
    void list_fronts(Elimination& found) {
        const Node last = static_cast<Node>(pivots_.size());
        for (Node f = 0; f < last; ++f) next_[at(pivots_[at(f)])] = f;
        for (const Node pivot : pivots_) {
            for (Node i = pivot; i >= 0; i = follows_[at(i)]) found.order.push_back(i);
            found.first.push_back(static_cast<Node>(found.order.size()));
            found.rows.push_back(degree_[at(pivot)]);
            const Node parent = parent_[at(pivot)];
            found.parent.push_back(parent >= 0 ? next_[at(parent)] : crowded_.empty() ? -1 : last);
        }
        if (crowded_.empty()) return;
        found.order.insert(found.order.end(), crowded_.begin(), crowded_.end());
        found.first.push_back(static_cast<Node>(n_));
        found.rows.push_back(0);
        found.parent.push_back(-1);
    }

    Index n_, left_ = 0, end_ = 0;  // end_: of what is used of lists_
    std::vector<Node> lists_;
    std::vector<Index> start_;
    std::vector<Node> length_, n_elements_, weight_;
    std::vector<Node>
        degree_;  // of a node, without what it stands for: a bound; of an element: the weight in it
    std::vector<Node> mark_;                       // 0: an absorbed element
    std::vector<Node> parent_;                     // the element that absorbed this one
    std::vector<Node> next_, before_, by_degree_;  // nodes of each degree; next_ also in by_hash_
    std::vector<Node> by_hash_, hash_;
    std::vector<Node> follows_, last_;  // the nodes that one stands for
    std::vector<Node> crowded_, pivots_;
    Node tag_ = 1, largest_ = 0, least_ = 0;
};

}  // namespace

bool minimum_degree(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges, Index block,
                    double max_cost, Elimination& found) {
    return Quotient(n, tail, head, n_edges).run(static_cast<double>(block), max_cost, found);
}

}  // namespace fusionopt
