#include "core/pair_rows.hpp"

#include <string>

#include "core/sweep.hpp"

namespace fusionopt {

namespace isa_baseline {
const PairRows<double>& pair_rows(double);
const PairRows<float>& pair_rows(float);
}  // namespace isa_baseline
#if defined(FUSIONOPT_X86)
namespace isa_avx2 {
const PairRows<double>& pair_rows(double);
const PairRows<float>& pair_rows(float);
}  // namespace isa_avx2
namespace isa_avx512 {
const PairRows<double>& pair_rows(double);
const PairRows<float>& pair_rows(float);
}  // namespace isa_avx512
#endif

namespace {

template <class T>
const PairRows<T>& chosen() {
#if defined(FUSIONOPT_X86)
    const std::string name = sweeps().name;
    if (name == "avx512") return isa_avx512::pair_rows(T());
    if (name == "avx2") return isa_avx2::pair_rows(T());
#endif
    return isa_baseline::pair_rows(T());
}

}  // namespace

template <>
const PairRows<double>& pair_rows<double>() {
    return chosen<double>();
}

template <>
const PairRows<float>& pair_rows<float>() {
    return chosen<float>();
}

}  // namespace fusionopt
