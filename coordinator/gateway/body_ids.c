#include "coordinator/gateway/body_ids.h"

#include <stdlib.h>

#include "common/status.h"
#include "common/vector.h"

static size_t space_skip(const char *text, size_t at, size_t n)
{
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    return at;
}

/* One number as JSON has them, which is an id; false: it is none. */
static bool id_read(const char *text, size_t *at, size_t n, uint32_t *out)
{
    uint64_t id = 0;
    size_t from = *at, i = from;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && id <= UINT32_MAX; i++)
        id = 10 * id + (uint64_t)(text[i] - '0');
    *at = i;
    *out = (uint32_t)id;
    return i > from && id <= UINT32_MAX && (text[from] != '0' || i == from + 1);
}

/* Where its `]` stands, or where it has one id too many; 0: it is no list of ids. */
static size_t list_read(struct body_ids *b, struct body_id_list *l, const char *text, size_t n,
                        size_t most)
{
    for (size_t at = l->begin;; at++) {
        uint32_t id;
        at = space_skip(text, at, n);
        if (!id_read(text, &at, n, &id))
            return 0;
        if (!vector_push(l->ids, l->n_ids, l->room, id)) {
            b->failed = true;
            return 0;
        }
        at = space_skip(text, at, n);
        if (at < n && (text[at] == ']' || l->n_ids > most))
            return at;
        if (at >= n || text[at] != ',')
            return 0;
    }
}

const struct body_id_list *body_ids_read(struct body_ids *b, size_t item, const char *text,
                                         size_t begin, size_t n, size_t most)
{
    struct body_id_list list = {.item = item, .begin = begin};
    list.end = list_read(b, &list, text, n, most);
    if (list.end && vector_push(b->lists, b->n, b->room, list))
        return &b->lists[b->n - 1];
    b->failed = b->failed || list.end;
    free(list.ids);
    return NULL;
}

bool body_ids_whole(const struct body_ids *b)
{
    return b->n && b->lists[0].item == BODY_IDS_WHOLE;
}

/* Of a list that was not read: its field's name is spelled with escapes, or goes by another one. */
static int tree_read(const json_t *value, uint32_t **ids, size_t *n_ids)
{
    size_t n = json_array_size(value);
    uint32_t *list = json_is_array(value) ? calloc(n + 1, sizeof *list) : NULL;
    if (!list)
        return json_is_array(value) ? HP_ENOMEM : HP_EINVAL;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(value, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > UINT32_MAX) {
            free(list);
            return HP_EINVAL;
        }
        list[i] = (uint32_t)json_integer_value(v);
    }
    *ids = list;
    *n_ids = n;
    return 0;
}

int body_ids_take(struct body_ids *b, size_t item, const json_t *value, uint32_t **ids,
                  size_t *n_ids)
{
    while (b->next < b->n && b->lists[b->next].item < item)
        b->next++;
    if (b->next >= b->n || b->lists[b->next].item != item)
        return tree_read(value, ids, n_ids);
    struct body_id_list *l = &b->lists[b->next++];
    *ids = l->ids;
    *n_ids = l->n_ids;
    l->ids = NULL;
    return 0;
}

void body_ids_free(struct body_ids *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->lists[i].ids);
    free(b->lists);
    *b = (struct body_ids){0};
}
