/* What a coordinator finds of requests of before, and what a client says of where it is: any bytes.
 */
#include <string.h>

#include "coordinator/gateway/event_ids.h"
#include "coordinator/gateway/kept_notes.h"
#include "coordinator/stream_records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.limit_bytes = 64 << 20};
    struct stream_record record;
    struct stream_record_end end;
    struct kept_stream kept;
    struct event_id id;
    struct err e;
    char text[64];
    uint64_t number;
    bool ended;
    const struct pack_span bytes = {data, size};
    stream_record_read(bytes, &arena, &record, &e);
    stream_record_end_read(bytes, &arena, &end, &e);
    if (kept_note_read(bytes, &kept)) {
        struct buffer again = {0};
        kept_note_write(&kept, &again);
        buffer_free(&again);
        buffer_free(&kept.body);
    }
    size_t n = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    stream_record_key(text, &number, &ended);
    if (event_id_read(text, size ? data[0] % 4 : 1, &id)) {
        struct buffer events = {0};
        buffer_append(&events, data, size);
        event_id_write(&events, 0, &id);
        buffer_free(&events);
    }
    arena_free(&arena);
    return 0;
}
