#define FUSIONOPT_ISA_NAMESPACE isa_avx2
#include "core/front_impl.hpp"
