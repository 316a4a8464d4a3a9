/* Messages as a peer would have sent them. */
#ifndef HP_TESTS_MESSAGE_FIXTURE_H
#define HP_TESTS_MESSAGE_FIXTURE_H

#include "common/bytes.h"
#include "transport/message_ref.h"

/* Held once; NULL when memory ran out. */
static inline struct message_ref *message_of_test(const struct message *m)
{
    struct buffer bytes = {0};
    struct message_ref *ref = NULL;
    struct err e = {0};
    message_encode(m, &bytes);
    if (!bytes.failed)
        (void)message_ref_decode(bytes.data, bytes.size, &ref, &e);
    buffer_free(&bytes);
    return ref;
}

#endif
