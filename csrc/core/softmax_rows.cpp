#include "core/softmax_rows.hpp"

#include <string_view>

#include "core/sweep.hpp"

namespace fusionopt {

namespace isa_baseline {
void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch);
}
#if defined(FUSIONOPT_X86)
namespace isa_avx2 {
void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch);
}
namespace isa_avx512 {
void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch);
}
#endif

void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
#if defined(FUSIONOPT_X86)
    const std::string_view name = sweeps().name;
    if (name == "avx512") return isa_avx512::softmax_gradient(rows, x, out, scratch);
    if (name == "avx2") return isa_avx2::softmax_gradient(rows, x, out, scratch);
#endif
    isa_baseline::softmax_gradient(rows, x, out, scratch);
}

}  // namespace fusionopt
