#include "transport/message_ref.h"

#include <stdlib.h>
#include <string.h>

int message_ref_decode(const uint8_t *bytes, size_t size, struct message_ref **out, struct err *e)
{
    struct message_ref *m = calloc(1, sizeof *m);
    if (!m || !(m->bytes = malloc(size ? size : 1))) {
        free(m);
        return err_set(e, HP_ENOMEM, "no memory for a message of %zu bytes", size);
    }
    memcpy(m->bytes, bytes, size);
    atomic_init(&m->holders, 1);
    int rc = message_decode(m->bytes, size, &m->arena, &m->message, e);
    if (rc < 0)
        message_ref_release(m);
    else
        *out = m;
    return rc;
}

struct message_ref *message_ref_hold(struct message_ref *m)
{
    atomic_fetch_add(&m->holders, 1);
    return m;
}

void message_ref_release(struct message_ref *m)
{
    if (!m || atomic_fetch_sub(&m->holders, 1) != 1)
        return;
    arena_free(&m->arena);
    free(m->bytes);
    free(m);
}
