// Numbers in lanes: Pack<T, L> holds L numbers in as many registers as the instruction set needs, so that one
// source gives the same grouping of sums everywhere. Included inside the namespace of each compilation, after
// FUSIONOPT_ISA_NAMESPACE is opened: nothing here is shared between them (one definition rule).

#if defined(__AVX512F__)
#define FUSIONOPT_REGISTER 64
#elif defined(__AVX2__)
#define FUSIONOPT_REGISTER 32
#else
#define FUSIONOPT_REGISTER 16
#endif
#if defined(__clang__)
#define FUSIONOPT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FUSIONOPT_UNROLL _Pragma("GCC unroll 16")
#endif

// Registers, whole and (for conversions) half, and the integers of a comparison.
template <class T>
struct Register;
template <>
struct Register<double> {
    typedef double Type __attribute__((vector_size(FUSIONOPT_REGISTER), aligned(sizeof(double)), may_alias));
    typedef std::int64_t Mask __attribute__((vector_size(FUSIONOPT_REGISTER)));
};
template <>
struct Register<float> {
    typedef float Type __attribute__((vector_size(FUSIONOPT_REGISTER), aligned(sizeof(float)), may_alias));
    typedef float Half
        __attribute__((vector_size(FUSIONOPT_REGISTER / 2), aligned(sizeof(float)), may_alias));
    typedef std::int32_t Mask __attribute__((vector_size(FUSIONOPT_REGISTER)));
};

template <class T, int L>
struct Pack {
    typedef T Element;
    typedef typename Register<T>::Type Part;
    static constexpr int kWidth = FUSIONOPT_REGISTER / static_cast<int>(sizeof(T));
    static constexpr int kParts = L / kWidth;
    static_assert(kParts * kWidth == L);
    Part part[kParts];

    T operator[](int l) const { return part[l / kWidth][l % kWidth]; }
};

template <class T, int L, class Action>
inline Pack<T, L> each(const Action& action) {
    Pack<T, L> out;
    FUSIONOPT_UNROLL
    for (int p = 0; p < Pack<T, L>::kParts; ++p) out.part[p] = action(p);
    return out;
}

template <class T, int L>
inline Pack<T, L> operator+(const Pack<T, L>& a, const Pack<T, L>& b) {
    return each<T, L>([&](int p) { return a.part[p] + b.part[p]; });
}
template <class T, int L>
inline Pack<T, L> operator-(const Pack<T, L>& a, const Pack<T, L>& b) {
    return each<T, L>([&](int p) { return a.part[p] - b.part[p]; });
}
template <class T, int L>
inline Pack<T, L> operator*(const Pack<T, L>& a, const Pack<T, L>& b) {
    return each<T, L>([&](int p) { return a.part[p] * b.part[p]; });
}
// a * b + c and c - a * b, in one rounding where the processor has it.
template <class T, int L>
inline Pack<T, L> fma(const Pack<T, L>& a, const Pack<T, L>& b, const Pack<T, L>& c) {
    return each<T, L>([&](int p) { return a.part[p] * b.part[p] + c.part[p]; });
}
template <class T, int L>
inline Pack<T, L> fnma(const Pack<T, L>& a, const Pack<T, L>& b, const Pack<T, L>& c) {
    return each<T, L>([&](int p) { return c.part[p] - a.part[p] * b.part[p]; });
}
// a where a < b, else b: also where b is not a number.
template <class T, int L>
inline Pack<T, L> smaller(const Pack<T, L>& a, const Pack<T, L>& b) {
    return each<T, L>([&](int p) {
        typedef typename Pack<T, L>::Part Part;
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == sizeof(double))
            return reinterpret_cast<Part>(_mm512_maskz_min_pd(0xFF, reinterpret_cast<__m512d>(a.part[p]),
                                                              reinterpret_cast<__m512d>(b.part[p])));
        else
            return reinterpret_cast<Part>(_mm512_maskz_min_ps(0xFFFF, reinterpret_cast<__m512>(a.part[p]),
                                                              reinterpret_cast<__m512>(b.part[p])));
#else
        return Part(a.part[p] < b.part[p] ? a.part[p] : b.part[p]);
#endif
    });
}
template <class T, int L>
inline Pack<T, L> larger(const Pack<T, L>& a, const Pack<T, L>& b) {
    return each<T, L>([&](int p) { return a.part[p] > b.part[p] ? a.part[p] : b.part[p]; });
}
// value where test > bound, else other.
template <class T, int L>
inline Pack<T, L> where_above(const Pack<T, L>& test, const Pack<T, L>& bound, const Pack<T, L>& value,
                              const Pack<T, L>& other) {
    return each<T, L>([&](int p) { return test.part[p] > bound.part[p] ? value.part[p] : other.part[p]; });
}

template <class P, class T>
inline P splat(T value) {
    P out;
    FUSIONOPT_UNROLL
    // x - 0 is x for every x, unlike x + 0: the compiler makes this one broadcast.
    for (int p = 0; p < P::kParts; ++p)
        out.part[p] = static_cast<typename P::Element>(value) - typename P::Part{};
    return out;
}
template <class P>
inline P zero() {
    P out;
    FUSIONOPT_UNROLL
    for (int p = 0; p < P::kParts; ++p) out.part[p] = typename P::Part{};
    return out;
}

// Loads L numbers of type S as a P, and stores them back rounded to S.
template <class P, class T>
inline P load(const T* from) {
    P out;
    FUSIONOPT_UNROLL
    for (int p = 0; p < P::kParts; ++p) {
        if constexpr (sizeof(T) == sizeof(out.part[0][0])) {
            out.part[p] = *reinterpret_cast<const typename P::Part*>(from + p * P::kWidth);
        } else {
            out.part[p] = __builtin_convertvector(
                *reinterpret_cast<const typename Register<float>::Half*>(from + p * P::kWidth),
                typename P::Part);
        }
    }
    return out;
}
template <class P, class T>
inline void store(T* to, const P& value) {
    FUSIONOPT_UNROLL
    for (int p = 0; p < P::kParts; ++p) {
        if constexpr (sizeof(T) == sizeof(value.part[0][0])) {
            *reinterpret_cast<typename P::Part*>(to + p * P::kWidth) = value.part[p];
        } else {
            *reinterpret_cast<typename Register<float>::Half*>(to + p * P::kWidth) =
                __builtin_convertvector(value.part[p], typename Register<float>::Half);
        }
    }
}

// 0, 1, ..., L - 1.
template <class P, class T>
inline P count_from(T first) {
    T numbers[P::kParts * P::kWidth];
    for (int l = 0; l < P::kParts * P::kWidth; ++l) numbers[l] = first + static_cast<T>(l);
    return load<P>(numbers);
}

// Sums by halves, in double: the same grouping on every instruction set.
template <class T, int L>
inline double sum(const Pack<T, L>& v) {
    double lane[L];
    for (int l = 0; l < L; ++l) lane[l] = static_cast<double>(v[l]);
    for (int half = L / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    return lane[0];
}
template <class T, int L>
inline double maximum(const Pack<T, L>& v) {
    T best = v[0];
    for (int l = 1; l < L; ++l) best = v[l] > best ? v[l] : best;
    return static_cast<double>(best);
}

// The guards only decide 0/0: state and data are scaled to unit size, and these are lost in any other sum of
// squares.
template <class T>
inline constexpr T kGuard = sizeof(T) == sizeof(double) ? T(1e-300) : T(1e-36);

template <class T, int L>
inline Pack<T, L> root(const Pack<T, L>& v) {
    return each<T, L>([&](int p) {
        typename Pack<T, L>::Part out = v.part[p];
#if defined(__AVX512F__)
        // The masked forms: the plain ones read an undefined register in GCC 12's headers, which
        // -Wmaybe-uninitialized reports.
        if constexpr (sizeof(T) == sizeof(double))
            out = reinterpret_cast<typename Pack<T, L>::Part>(
                _mm512_maskz_sqrt_pd(0xFF, reinterpret_cast<__m512d>(v.part[p])));
        else
            out = reinterpret_cast<typename Pack<T, L>::Part>(
                _mm512_maskz_sqrt_ps(0xFFFF, reinterpret_cast<__m512>(v.part[p])));
#else
        for (int l = 0; l < Pack<T, L>::kWidth; ++l) out[l] = std::sqrt(v.part[p][l]);
#endif
        return out;
    });
}

// 1 / sqrt(v) for v > 0, within two units in the last place. An overflowing v gives NaN, never a number.
template <class T, int L>
inline Pack<T, L> inverse_root(const Pack<T, L>& v) {
    return each<T, L>([&](int p) {
        typedef typename Pack<T, L>::Part Part;
        const Part x = v.part[p];
#if defined(__AVX512F__)
        // 14 bits from the table; e = 1 - x r^2 then gives the rest of the series of (1 - e)^(-1/2).
        if constexpr (sizeof(T) == sizeof(double)) {
            const Part r =
                reinterpret_cast<Part>(_mm512_maskz_rsqrt14_pd(0xFF, reinterpret_cast<__m512d>(x)));
            const Part xr = x * r, e = 1.0 - xr * r;
            const Part series = 0.5 + e * (0.375 + e * 0.3125);
            const Part re = r * e;
            return Part(r + re * series);
        } else {
            const Part r =
                reinterpret_cast<Part>(_mm512_maskz_rsqrt14_ps(0xFFFF, reinterpret_cast<__m512>(x)));
            const Part xr = x * r, e = 1.0F - xr * r;
            const Part re = r * e;
            return Part(r + re * (0.5F + e * 0.375F));
        }
#else
        Part out = x;
        for (int l = 0; l < Pack<T, L>::kWidth; ++l) out[l] = std::sqrt(x[l]);
        return Part(T(1) / out);
#endif
    });
}

template <class T, int L>
inline Pack<T, L> norm(const Pack<T, L>& squared) {
    return root(squared + splat<Pack<T, L>>(kGuard<T>));
}
// min(1, radius / ||y||)
template <class T, int L>
inline Pack<T, L> shrink_factor(const Pack<T, L>& squared, const Pack<T, L>& radius) {
    typedef Pack<T, L> P;
    return smaller(splat<P>(T(1)), radius * inverse_root(squared + splat<P>(kGuard<T>)));
}
