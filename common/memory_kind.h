/* Whose memory an address is of: what a device and a transport have to agree on, for one to read
 * and write what the other has. */
#ifndef HP_COMMON_MEMORY_KIND_H
#define HP_COMMON_MEMORY_KIND_H

enum memory_kind {
    MEMORY_HOST, /* any thread of the process reads and writes it */
    MEMORY_CUDA, /* of a GPU: CUDA alone, and transports that know of it */
    MEMORY_KINDS
};

#endif
