/* Control messages and manifests: any bytes from the network. */
#include "transport/message.h"

#include "common/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.limit_bytes = 64 << 20};
    struct message m;
    struct manifest manifest;
    struct err e;
    if (message_decode(data, size, &arena, &m, &e) == 0) {
        struct buffer again = {0};
        message_encode(&m, &again);
        buffer_free(&again);
    }
    manifest_decode(data, size, &arena, &manifest, &e);
    arena_free(&arena);
    return 0;
}
