/* What our .cu files use of the driver's interface: green contexts. The runtime finds its functions
 * by name. The variable CUDA_ON_CPU sets "sms=N", how many multiprocessors there are (at most 64),
 * and "green=0": a driver that makes no green contexts. */
#ifndef HP_TESTS_CUDA_ON_CPU_CUDA_H
#define HP_TESTS_CUDA_ON_CPU_CUDA_H

#include "cuda_runtime.h"

#define CUDA_VERSION 13000

enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
};
enum CUdevResourceType { CU_DEV_RESOURCE_TYPE_SM = 1 };
enum CUdevice_attribute { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75 };
enum { CU_GREEN_CTX_DEFAULT_STREAM = 1, CU_STREAM_NON_BLOCKING = 1 };
typedef int CUdevice;
typedef cudaStream_t CUstream;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
struct CUdevResource {
    CUdevResourceType type;
    unsigned split;   /* of which it came; 0: of none */
    uint64_t members; /* multiprocessors, as a mask */
    struct {
        unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
    } sm;
};
CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *out, int ordinal);
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice device);
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *n, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned flags, unsigned least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned n);
CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc text, CUdevice device, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int priority);

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess,
    cudaDriverEntryPointSymbolNotFound
};
enum { cudaEnableDefault };
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *how);

#endif
