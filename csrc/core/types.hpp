// Index type, lane count and the padded buffers that every kernel works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fusionopt {

using Index = std::int64_t;

// Pairs are handled in blocks of kLanes. Reductions are written in lanes by hand: the compiler then
// vectorises them without being allowed to reorder floating point sums, so no -ffast-math is needed and one
// source gives the same grouping on every instruction set.
inline constexpr Index kLanes = 8;

inline constexpr Index round_up(Index n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Aligned, zero-initialised array of numbers. Large ones come as untouched zero pages, huge ones where the
// system has them: the first sweep then pays for each page once, and for few of them. Throws std::bad_alloc.
template <class T>
class BufferOf {
  public:
    BufferOf() = default;
    explicit BufferOf(Index size) : size_(size) {
        const std::size_t bytes = static_cast<std::size_t>(size > 0 ? size : 1) * sizeof(T);
#if defined(__linux__)
        if (bytes >= kHuge) {
            void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (pages == MAP_FAILED) throw std::bad_alloc();
            madvise(pages, bytes, MADV_HUGEPAGE);  // a wish: failure changes nothing
            data_ = Owner(static_cast<T*>(pages), Free(bytes));
            return;
        }
#endif
        data_ = Owner(static_cast<T*>(::operator new(bytes, std::align_val_t(64))), Free());
        fill(T(0));
    }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    T& operator[](Index k) { return data_[static_cast<std::size_t>(k)]; }
    T operator[](Index k) const { return data_[static_cast<std::size_t>(k)]; }
    Index size() const { return size_; }
    void fill(T value) {
        for (Index k = 0; k < size_; ++k) data_[static_cast<std::size_t>(k)] = value;
    }

  private:
    static constexpr std::size_t kHuge = std::size_t{4} << 20;
    struct Free {
        std::size_t mapped;  // bytes, or 0 for memory of operator new
        Free() : mapped(0) {}
        explicit Free(std::size_t bytes) : mapped(bytes) {}
        void operator()(T* p) const {
#if defined(__linux__)
            if (mapped > 0) {
                munmap(p, mapped);
                return;
            }
#endif
            ::operator delete(p, std::align_val_t(64));
        }
    };
    using Owner = std::unique_ptr<T[], Free>;
    Owner data_;
    Index size_ = 0;
};

using Buffer = BufferOf<double>;

// Rows of an edge's ends lie anywhere in memory: asked for this many edges ahead they are there in time.
inline constexpr Index kAhead = 16;
template <class T>
[[gnu::always_inline]] inline void ask_for(const T* row, Index numbers) {
    __builtin_prefetch(row);
    if (numbers * static_cast<Index>(sizeof(T)) > 16) __builtin_prefetch(row + numbers - 1);
}

}  // namespace fusionopt
