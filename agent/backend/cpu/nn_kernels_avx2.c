/* The loops of networks for AVX2. */
#define NN_TABLE nn_kernels_avx2
#define NN_NAME "avx2"
#define NN_LANES 16
#include "agent/backend/cpu/nn_kernels.inc"
