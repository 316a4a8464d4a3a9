#include "agent/borders.h"

#include <stdlib.h>
#include <string.h>

#include "model/graph/kinds.h"
#include "transport/message.h"

int border_copy(const struct pack_list *from, struct pack_list *out)
{
    const struct message_value *values = from->items;
    size_t bytes = from->count * sizeof *values;
    *out = (struct pack_list){0};
    if (!from->count)
        return 0;
    for (size_t i = 0; i < from->count; i++)
        bytes += strlen(values[i].name) + 1;
    struct message_value *copy = malloc(bytes);
    if (!copy)
        return HP_ENOMEM;
    char *text = (char *)(copy + from->count);
    for (size_t i = 0; i < from->count; i++) {
        size_t n = strlen(values[i].name) + 1;
        memcpy(text, values[i].name, n);
        copy[i] = (struct message_value){text, values[i].width, values[i].exact};
        text += n;
    }
    *out = (struct pack_list){copy, from->count};
    return 0;
}

void border_free(struct pack_list *border)
{
    free(border->items);
    *border = (struct pack_list){0};
}

static int value_differs(const struct message_value *said, const struct message_value *own,
                         const char *who, struct err *e)
{
    if (strcmp(said->name, own->name) != 0 || said->width != own->width)
        return err_set(
            e, HP_EINVAL,
            "%.80s of %llu elements a token is to cross between stages; %s has %.80s of %llu",
            said->name, (unsigned long long)said->width, who, own->name,
            (unsigned long long)own->width);
    if (said->exact == own->exact)
        return 0;
    err_set(e, HP_EINVAL, "%.80s is to cross between stages %s; %s has it %s", said->name,
            said->exact ? "as float32" : "in the hop's format", who,
            own->exact ? "as float32" : "in the hop's format");
    return err_hint(e, "coordinator and agents are of different versions: update all of them");
}

static int count_differs(size_t said, size_t own, const char *who, struct err *e)
{
    return err_set(e, HP_EINVAL, "%zu values are to cross between stages; %s has %zu there", said,
                   who, own);
}

int border_agrees(const struct pack_list *said, const struct pack_list *own, const char *who,
                  struct err *e)
{
    const struct message_value *a = said->items, *b = own->items;
    int rc = 0;
    if (!said->count || !own->count)
        return 0;
    if (said->count != own->count)
        return count_differs(said->count, own->count, who, e);
    for (size_t i = 0; rc == 0 && i < said->count; i++)
        rc = value_differs(&a[i], &b[i], who, e);
    return rc;
}

int border_fits(const struct pack_list *said, const struct graph *g, int layer, struct err *e)
{
    const struct graph_layer *l = &g->layers[layer];
    const struct message_value *values = said->items;
    int rc = 0;
    if (!said->count)
        return 0;
    if (said->count != (size_t)l->n_outputs)
        return count_differs(said->count, (size_t)l->n_outputs, "the model", e);
    for (int i = 0; rc == 0 && i < l->n_outputs; i++) {
        const struct graph_value *v = &g->values[l->outputs[i]];
        const struct message_value own = {v->name, graph_value_width(v), v->exact};
        rc = value_differs(&values[i], &own, "the model", e);
    }
    return rc;
}
