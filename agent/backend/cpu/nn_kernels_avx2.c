/* The loops of networks for AVX2. */
#define NN_TABLE nn_kernels_avx2
#define NN_NAME "avx2"
#define NN_LANES 16
#define NN_VECTOR 8
#include "agent/backend/cpu/nn_kernels.inc"
