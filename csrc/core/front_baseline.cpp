#define FUSIONOPT_ISA_NAMESPACE isa_baseline
#include "core/front_impl.hpp"
