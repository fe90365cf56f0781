#include "core/softmax_rows.hpp"

#include <string_view>

#include "core/sweep.hpp"

namespace fusionopt {

#define FUSIONOPT_DECLARE(isa)                                                                     \
    namespace isa {                                                                                \
    void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch); \
    double softmax_losses(const SoftmaxRows& rows, const double* x, double* out, double* scratch); \
    }
FUSIONOPT_DECLARE(isa_baseline)
#if defined(FUSIONOPT_X86)
FUSIONOPT_DECLARE(isa_avx2)
FUSIONOPT_DECLARE(isa_avx512)
#endif
#undef FUSIONOPT_DECLARE

void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
#if defined(FUSIONOPT_X86)
    const std::string_view name = sweeps().name;
    if (name == "avx512") return isa_avx512::softmax_gradient(rows, x, out, scratch);
    if (name == "avx2") return isa_avx2::softmax_gradient(rows, x, out, scratch);
#endif
    isa_baseline::softmax_gradient(rows, x, out, scratch);
}

double softmax_losses(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
#if defined(FUSIONOPT_X86)
    const std::string_view name = sweeps().name;
    if (name == "avx512") return isa_avx512::softmax_losses(rows, x, out, scratch);
    if (name == "avx2") return isa_avx2::softmax_losses(rows, x, out, scratch);
#endif
    return isa_baseline::softmax_losses(rows, x, out, scratch);
}

}  // namespace fusionopt
