// The numbers that a run carries from one lam to the next, written to or read from one flat array.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

// One list of fields serves both directions: each `pass` appends its argument, or replaces it by what was
// written. Integers are exact up to 2^53.
class StateStream {
  public:
    explicit StateStream(std::vector<double>& numbers, bool writing) : numbers_(numbers), writing_(writing) {}

    void pass(double* values, Index n) {
        const std::size_t count = static_cast<std::size_t>(n);
        if (writing_) {
            numbers_.insert(numbers_.end(), values, values + count);
            return;
        }
        if (count > numbers_.size() - place_) throw std::invalid_argument("the saved state is too short");
        std::copy_n(numbers_.data() + place_, count, values);
        place_ += count;
    }
    void pass(std::vector<double>& values) { pass(values.data(), static_cast<Index>(values.size())); }
    void pass(Buffer& values) { pass(values.data(), values.size()); }
    template <class Number>
    void pass(Number& value) {
        double number = static_cast<double>(value);
        pass(&number, 1);
        value = static_cast<Number>(number);
    }
    // Nothing may be left over: another problem's state would fit a larger one's beginning.
    void close() const {
        if (!writing_ && place_ != numbers_.size())
            throw std::invalid_argument("the saved state is too long");
    }

  private:
    std::vector<double>& numbers_;
    bool writing_;
    std::size_t place_ = 0;
};

}  // namespace fusionopt
