#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/sweep.hpp"

namespace fusionopt {

namespace isa_baseline {
const SweepTable& table();
}
#if defined(FUSIONOPT_X86)
namespace isa_avx2 {
const SweepTable& table();
}
namespace isa_avx512 {
const SweepTable& table();
}
#endif

namespace {

const SweepTable* supported(const std::string& name) {
    if (name == "baseline") return &isa_baseline::table();
#if defined(FUSIONOPT_X86)
    if (name == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &isa_avx2::table();
    if (name == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &isa_avx512::table();
#endif
    return nullptr;
}

const SweepTable& choose() {
    if (const char* wanted = std::getenv("FUSIONOPT_ISA"); wanted != nullptr && *wanted != '\0') {
        const SweepTable* named = supported(wanted);
        if (named == nullptr)
            throw std::invalid_argument(
                "FUSIONOPT_ISA=" + std::string(wanted) +
                " is unknown or not supported by this processor; use baseline, avx2 or avx512");
        return *named;
    }
    for (const char* name : {"avx512", "avx2"})
        if (const SweepTable* found = supported(name)) return *found;
    return *supported("baseline");
}

}  // namespace

const SweepTable& sweeps() {
    static const SweepTable& chosen = choose();
    return chosen;
}

double ball_shrink(Index n_features) {
    return static_cast<double>(n_features + 8) * std::numeric_limits<double>::epsilon();
}

}  // namespace fusionopt
