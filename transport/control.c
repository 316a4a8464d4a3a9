#include "transport/control_int.h"

int control_port(const struct control *c)
{
    return c->ops->port(c);
}
void control_read(struct control *c)
{
    c->ops->read(c);
}

enum control_contact control_contact(const struct control *c)
{
    return c->ops->contact(c);
}

int control_send(struct control *c, uint64_t peer, const uint8_t *bytes, size_t size, struct err *e)
{
    return c->ops->send(c, peer, bytes, size, e);
}

void control_close(struct control **c)
{
    if (*c)
        (*c)->ops->close(*c);
    *c = NULL;
}
