#include <string_view>

#include "core/implicit.hpp"
#include "core/sweep.hpp"

namespace fusionopt {

namespace isa_baseline {
const ImplicitTable& implicit_table();
}
#if defined(FUSIONOPT_X86)
namespace isa_avx2 {
const ImplicitTable& implicit_table();
}
namespace isa_avx512 {
const ImplicitTable& implicit_table();
}
#endif

const ImplicitTable& implicit_kernels() {
#if defined(FUSIONOPT_X86)
    const std::string_view name = sweeps().name;
    if (name == "avx512") return isa_avx512::implicit_table();
    if (name == "avx2") return isa_avx2::implicit_table();
#endif
    return isa_baseline::implicit_table();
}

}  // namespace fusionopt
