#define FUSIONOPT_ISA_NAMESPACE isa_baseline
#define FUSIONOPT_ISA_NAME "baseline"
#include "core/implicit_impl.hpp"
