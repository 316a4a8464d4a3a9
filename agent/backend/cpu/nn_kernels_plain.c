/* The loops of networks for any CPU. */
#define NN_TABLE nn_kernels_plain
#define NN_NAME "plain"
#define NN_LANES 4
#define NN_VECTOR 4
#include "agent/backend/cpu/nn_kernels.inc"
