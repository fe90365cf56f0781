#define FUSIONOPT_ISA_NAMESPACE isa_baseline
#define FUSIONOPT_ISA_NAME "baseline"
#include "core/pair_rows_impl.hpp"
#include "core/softmax_rows_impl.hpp"
#include "core/sweep_impl.hpp"
