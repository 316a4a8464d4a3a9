/* The loops of networks for AVX-512. */
#define NN_TABLE nn_kernels_avx512
#define NN_NAME "avx512"
#define NN_LANES 32
#define NN_VECTOR 16
#include "agent/backend/cpu/nn_kernels.inc"
