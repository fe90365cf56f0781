#define FUSIONOPT_ISA_NAMESPACE isa_avx2
#define FUSIONOPT_ISA_NAME "avx2"
#include "core/pair_rows_impl.hpp"
#include "core/softmax_rows_impl.hpp"
#include "core/sweep_impl.hpp"
