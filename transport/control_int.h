/* What the two kinds of control endpoint share. Only control*.c includes this. */
#ifndef HP_TRANSPORT_CONTROL_INT_H
#define HP_TRANSPORT_CONTROL_INT_H

#include "transport/control.h"

struct control_ops {
    int (*send)(struct control *c, uint64_t peer, const uint8_t *bytes, size_t size, struct err *e);
    int (*port)(const struct control *c);
    void (*read)(struct control *c);
    enum control_contact (*contact)(const struct control *c);
    void (*close)(struct control *c);
};

/* The kinds embed it as their first member. */
struct control {
    const struct control_ops *ops;
    struct control_callbacks callbacks;
};

#endif
