// Index type, lane count and the padded buffers that every kernel works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fusionopt {

using Index = std::int64_t;

// Pairs are handled in blocks of kLanes. Reductions are written in lanes by hand: the compiler then vectorises them without being allowed
// to reorder floating point sums, so no -ffast-math is needed and one source gives the same grouping on every instruction set.
inline constexpr Index kLanes = 8;

inline constexpr Index round_up(Index n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Cache-line aligned, zero-initialised array of doubles. Throws std::bad_alloc.
class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(Index size) : size_(size) {
        const std::size_t bytes = static_cast<std::size_t>(size > 0 ? size : 1) * sizeof(double);
        data_.reset(static_cast<double*>(::operator new(bytes, std::align_val_t(64))));
        for (Index k = 0; k < size_; ++k) data_[static_cast<std::size_t>(k)] = 0.0;
    }
    double* data() { return data_.get(); }
    const double* data() const { return data_.get(); }
    double& operator[](Index k) { return data_[static_cast<std::size_t>(k)]; }
    double operator[](Index k) const { return data_[static_cast<std::size_t>(k)]; }
    Index size() const { return size_; }
    void fill(double value) {
        for (Index k = 0; k < size_; ++k) data_[static_cast<std::size_t>(k)] = value;
    }

   private:
    struct Free {
        void operator()(double* p) const { ::operator delete(p, std::align_val_t(64)); }
    };
    std::unique_ptr<double[], Free> data_;
    Index size_ = 0;
};

}  // namespace fusionopt
