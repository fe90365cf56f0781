#define FUSIONOPT_ISA_NAMESPACE isa_avx512
#define FUSIONOPT_ISA_NAME "avx512"
#include "core/implicit_impl.hpp"
