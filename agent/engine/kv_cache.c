#include "agent/engine/kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t pages_of(uint64_t tokens)
{
    return tokens / KV_PAGE_TOKENS + (tokens % KV_PAGE_TOKENS != 0);
}

static uint32_t slots_of(const struct kv_cache *c)
{
    return c->room.max_sequences + KV_KEPT_MAX;
}

/* ---- the pools ---- */

/* Of a group without a window: for all tokens, and for each sequence one that it leaves unfilled.
 */
static uint64_t whole_pages(const struct kv_room *room)
{
    return pages_of(room->tokens) + room->max_sequences;
}

/* A page that is begun before what the next token sees, and one that is not full yet: the most that
 * a sequence holds of a group with a window. */
static uint64_t window_pages(const struct kv_layout *l, const struct kv_room *room)
{
    return pages_of((uint64_t)l->window + room->ahead_tokens) + 1;
}

/* Whether its pool has what max_sequences hold at once, and no more. */
static bool pool_is_narrow(const struct kv_layout *l, const struct kv_room *room)
{
    return l->n_blocks && l->window &&
           window_pages(l, room) < whole_pages(room) / room->max_sequences;
}

static uint64_t pool_pages(const struct kv_layout *l, const struct kv_room *room)
{
    if (!l->n_blocks)
        return 0;
    return pool_is_narrow(l, room) ? window_pages(l, room) * room->max_sequences
                                   : whole_pages(room);
}

static uint64_t pool_bytes(const struct device *d, const struct kv_layout *l,
                           const struct kv_room *room)
{
    uint64_t n = pool_pages(l, room), bytes;
    if (!n)
        return 0;
    return __builtin_mul_overflow(n, d->backend->kv_page_bytes(d, l), &bytes)
               ? UINT64_MAX
               : backend_memory_bytes(d->backend, bytes);
}

uint64_t kv_cache_bytes(const struct device *d, const struct kv_groups *k,
                        const struct kv_room *room)
{
    uint64_t sum = 0;
    for (int g = 0; g < k->n; g++)
        if (__builtin_add_overflow(sum, pool_bytes(d, &k->layouts[g], room), &sum))
            return UINT64_MAX;
    return sum;
}

static int pool_make(struct kv_cache *c, int g, struct err *e)
{
    struct kv_pool *p = &c->pools[g];
    unsigned long long tokens = c->room.tokens;
    uint64_t n = pool_pages(&c->kinds.layouts[g], &c->room);
    c->groups[g].layout = c->kinds.layouts[g];
    c->narrow |= pool_is_narrow(&c->kinds.layouts[g], &c->room);
    if (!n)
        return 0;
    if (n >= KV_NO_PAGE)
        return err_set(e, HP_EINVAL,
                       "a KV cache of %llu tokens is larger than this build can count", tokens);
    p->n_pages = p->n_free = (uint32_t)n;
    p->free_pages = calloc(n, sizeof *p->free_pages);
    p->holders = calloc(n, sizeof *p->holders);
    if (!p->free_pages || !p->holders)
        return err_set(e, HP_ENOMEM, "no memory for the table of a KV cache of %llu tokens",
                       tokens);
    for (uint32_t i = 0; i < p->n_pages; i++)
        p->free_pages[i] = p->n_pages - 1 - i;
    int rc = c->device->backend->memory_alloc(
        c->device, pool_bytes(c->device, &c->kinds.layouts[g], &c->room), &c->groups[g].pool, e);
    return rc < 0 ? err_at(e, "KV cache of %llu tokens", tokens) : 0;
}

int kv_cache_init(struct kv_cache *c, struct device *d, const struct kv_groups *k,
                  const struct kv_room *room, struct err *e)
{
    int rc = 0;
    *c = (struct kv_cache){.device = d, .kinds = *k, .room = *room};
    c->sequences = calloc((size_t)room->max_sequences + KV_KEPT_MAX, sizeof *c->sequences);
    if (!c->sequences)
        rc = err_set(e, HP_ENOMEM, "no memory for a KV cache of %u sequences", room->max_sequences);
    for (int g = 0; g < k->n && rc == 0; g++)
        rc = pool_make(c, g, e);
    if (rc < 0)
        kv_cache_fini(c);
    return rc;
}

static void places_free(struct kv_cache *c, struct kv_sequence *s)
{
    kv_account_close(&c->account, &s->holding);
    free(s->places);
    free(s->awaited);
    *s = (struct kv_sequence){0};
}

void kv_cache_fini(struct kv_cache *c)
{
    for (uint32_t i = 0; c->sequences && i < slots_of(c); i++)
        places_free(c, &c->sequences[i]);
    kv_account_free(&c->account);
    free(c->sequences);
    for (int g = 0; g < c->kinds.n; g++) {
        free(c->pools[g].free_pages);
        free(c->pools[g].holders);
        if (c->groups[g].pool.data)
            c->device->backend->memory_release(c->device, &c->groups[g].pool);
    }
    *c = (struct kv_cache){0};
}

/* ---- pages ---- */

static bool page_take(struct kv_pool *p, uint32_t *place)
{
    if (!p->n_free)
        return false;
    *place = p->free_pages[--p->n_free];
    p->holders[*place] = 1;
    return true;
}

static void page_leave(struct kv_pool *p, uint32_t *place)
{
    assert(*place < p->n_pages && p->holders[*place]);
    if (--p->holders[*place] == 0)
        p->free_pages[p->n_free++] = *place;
    *place = KV_NO_PAGE;
}

/* The whole page, as numbers of four bytes: no backend's page is anything else. */
static struct tensor page_tensor(const struct kv_cache *c, int g, uint32_t page)
{
    uint64_t bytes = c->device->backend->kv_page_bytes(c->device, &c->groups[g].layout);
    struct tensor t =
        tensor_rows(c->groups[g].pool, DTYPE_U32, 1, bytes / dtype_info(DTYPE_U32)->block_bytes);
    t.offset = page * bytes;
    return t;
}

/* A page of its own, with what stands in the one that others have too. */
static bool page_copy(struct kv_cache *c, struct stream *stream, int g, uint32_t *place)
{
    struct kv_pool *p = &c->pools[g];
    uint32_t own;
    if (p->holders[*place] == 1)
        return true;
    if (!page_take(p, &own))
        return false;
    struct tensor to = page_tensor(c, g, own), from = page_tensor(c, g, *place);
    c->device->backend->copy(stream, &to, &from);
    page_leave(p, place);
    *place = own;
    return true;
}

/* The list of a group, to be written to. */
static uint32_t *places_of(const struct kv_sequence *s, int g)
{
    return s->places + (s->pages[g] - s->places);
}

/* Pages that follow those that are there, up to `end`. */
static bool pages_take(struct kv_cache *c, struct kv_sequence *s, int g, uint32_t end)
{
    for (; s->held[g].end < end; s->held[g].end++)
        if (!page_take(&c->pools[g], &places_of(s, g)[s->held[g].end]))
            return false;
    return true;
}

static void pages_leave(struct kv_cache *c, struct kv_sequence *s, int g, uint32_t from,
                        uint32_t end)
{
    for (uint32_t i = from; i < end; i++)
        page_leave(&c->pools[g], &places_of(s, g)[i]);
}

static int pages_missing(struct err *e)
{
    return err_set(e, HP_EBUSY, "the KV cache has no page left");
}

/* The page that a token at position `length` begins to see. */
static uint32_t first_page(const struct kv_cache *c, int g, uint32_t length)
{
    return kv_first_seen(c->groups[g].layout.window, length) / KV_PAGE_TOKENS;
}

/* ---- opening and closing ---- */

struct kv_sequence *kv_cache_find(const struct kv_cache *c, uint64_t id)
{
    for (uint32_t i = 0; i < slots_of(c); i++)
        if (c->sequences[i].places && c->sequences[i].id == id)
            return &c->sequences[i];
    return NULL;
}

static struct kv_sequence *slot_between(const struct kv_cache *c, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        if (!c->sequences[i].places)
            return &c->sequences[i];
    return NULL;
}

/* A place for one more that runs; NULL: none is left. */
static struct kv_sequence *slot_free(const struct kv_cache *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; c->narrow && i < slots_of(c); i++)
        n += c->sequences[i].places != NULL;
    return n < c->room.max_sequences ? slot_between(c, 0, c->room.max_sequences) : NULL;
}

static int pages_check(const struct kv_cache *c, uint32_t need, struct err *e)
{
    uint64_t left = whole_pages(&c->room) - c->account.used;
    return need <= left
               ? 0
               : err_set(e, HP_EBUSY, "%llu pages of %d tokens of KV cache are free, %u are needed",
                         (unsigned long long)left, KV_PAGE_TOKENS, need);
}

/* `shared`: of its tokens, those whose pages are there. */
static int room_check(const struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t reserved,
                      uint32_t length, uint32_t shared, struct err *e)
{
    if (max_tokens == 0)
        return err_set(e, HP_EINVAL, "a sequence needs room for at least one token");
    if (length > max_tokens)
        return err_set(e, HP_EINVAL, "a sequence with room for %u tokens cannot begin with %u",
                       max_tokens, length);
    if (reserved < length || reserved > max_tokens)
        return err_set(e, HP_EINVAL, "%u tokens cannot be reserved for a sequence of %u to %u",
                       reserved, length, max_tokens);
    if (kv_cache_find(c, id))
        return err_set(e, HP_EEXIST, "sequence %llu is open already", (unsigned long long)id);
    if (max_tokens > c->room.tokens)
        return err_set(e, HP_EINFEASIBLE,
                       "a sequence of %u tokens does not fit: the KV cache holds %llu in all",
                       max_tokens, (unsigned long long)c->room.tokens);
    if (!slot_free(c))
        return err_set(e, HP_EBUSY, "all %u sequences are in use", c->room.max_sequences);
    return pages_check(c, kv_account_need(reserved, shared), e);
}

/* An empty sequence of `length` tokens, without their pages; `from`: whose they are, NULL:
 * nobody's.
 */
static int sequence_make(struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t reserved,
                         uint32_t length, const struct kv_sequence *from, struct kv_sequence **out,
                         struct err *e)
{
    uint32_t shared = from ? length : 0;
    int rc = room_check(c, id, max_tokens, reserved, length, shared, e);
    if (rc < 0)
        return rc;
    struct kv_sequence *s = slot_free(c);
    size_t each = pages_of(max_tokens), all = each * (size_t)(c->kinds.n ? c->kinds.n : 1);
    uint32_t *places = malloc(all * sizeof *places);
    struct kv_holding holding;
    if (!places ||
        !kv_account_open(&c->account, &holding, reserved, from ? &from->holding : NULL, shared)) {
        free(places);
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    }
    for (size_t i = 0; i < all; i++)
        places[i] = KV_NO_PAGE;
    *s = (struct kv_sequence){.id = id,
                              .length = length,
                              .settled = length,
                              .began = length,
                              .max_tokens = max_tokens,
                              .reach = max_tokens,
                              .places = places,
                              .holding = holding};
    for (int g = 0; g < c->kinds.n; g++) {
        s->pages[g] = places + (size_t)g * each;
        s->held[g].first = s->held[g].end = first_page(c, g, length);
    }
    *out = s;
    return 0;
}

/* Pages for what it begins with; all that stands in them is awaited, but for those that
 * are lent. */
static int beginning_take(struct kv_cache *c, struct kv_sequence *s, struct err *e)
{
    size_t n = 0, at = 0;
    for (int g = 0; g < c->kinds.n; g++) {
        if (c->pools[g].n_pages && !pages_take(c, s, g, (uint32_t)pages_of(s->began)))
            return pages_missing(e);
        n += (size_t)c->groups[g].layout.n_blocks * (s->held[g].end - s->held[g].first);
    }
    if (n > UINT32_MAX || (s->awaited = malloc(n ? n : 1)) == NULL)
        return err_set(e, HP_ENOMEM, "no memory for a sequence of %u tokens", s->began);
    for (int g = 0; g < c->kinds.n; g++)
        for (int b = 0; b < c->groups[g].layout.n_blocks; b++)
            for (uint32_t page = s->held[g].first; page < s->held[g].end; page++)
                s->n_awaited += s->awaited[at++] = page >= s->lent;
    return 0;
}

static int sequence_open_empty(struct kv_cache *c, uint64_t id, uint32_t max_tokens,
                               uint32_t reserved, uint32_t length, struct err *e)
{
    struct kv_sequence *s;
    int rc = sequence_make(c, id, max_tokens, reserved, length, NULL, &s, e);
    if (rc == 0 && length && (rc = beginning_take(c, s, e)) < 0)
        kv_cache_close(c, id);
    return rc;
}

int kv_cache_await(struct kv_cache *c, uint64_t id, uint32_t length, struct err *e)
{
    struct kv_sequence *s = kv_cache_find(c, id);
    if (!s)
        return err_set(e, HP_ENOENT, "sequence %llu is not open", (unsigned long long)id);
    if (s->holding.kept || s->awaited || s->length != s->began || s->length % KV_PAGE_TOKENS ||
        length <= s->length || kv_pages_for(length) > s->holding.n_pages || length > s->max_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu of %u tokens cannot begin with %u",
                       (unsigned long long)id, s->length, length);
    s->lent = s->began / KV_PAGE_TOKENS;
    for (int g = 0; g < c->kinds.n; g++) { /* what a later token does not see goes */
        uint32_t first = first_page(c, g, length);
        struct kv_pages *held = &s->held[g];
        pages_leave(c, s, g, held->first, first < held->end ? first : held->end);
        held->first = first;
        held->end = first > held->end ? first : held->end;
    }
    s->length = s->settled = s->began = length;
    return beginning_take(c, s, e);
}

static int share_check(const struct kv_cache *c, uint64_t from, uint32_t length, struct err *e)
{
    const struct kv_sequence *s = kv_cache_find(c, from);
    unsigned long long id = from;
    if (!s)
        return err_set(e, HP_ENOENT,
                       "sequence %llu, whose keys and values are to be shared, is "
                       "not open",
                       id);
    if (s->n_awaited)
        return err_set(e, HP_EBUSY, "the keys and values of sequence %llu have not all come", id);
    if (length > s->settled)
        return err_set(e, HP_EINVAL, "sequence %llu has %u tokens to share, not %u", id, s->settled,
                       length);
    for (int g = 0; g < c->kinds.n; g++)
        if (c->pools[g].n_pages && first_page(c, g, length) < s->held[g].first)
            return err_set(e, HP_EINVAL,
                           "sequence %llu has given back what its first %u tokens would see", id,
                           length);
    return 0;
}

static int sequence_open_shared(struct kv_cache *c, uint64_t id, uint32_t max_tokens,
                                uint32_t reserved, uint32_t length, uint64_t from, struct err *e)
{
    struct kv_sequence *s;
    int rc = share_check(c, from, length, e);
    const struct kv_sequence *other = kv_cache_find(c, from);
    rc = rc < 0 ? rc : sequence_make(c, id, max_tokens, reserved, length, other, &s, e);
    if (rc < 0)
        return rc;
    for (int g = 0; g < c->kinds.n; g++)
        for (uint32_t end = (uint32_t)pages_of(length); c->pools[g].n_pages && s->held[g].end < end;
             s->held[g].end++) {
            uint32_t page = other->pages[g][s->held[g].end];
            places_of(s, g)[s->held[g].end] = page;
            c->pools[g].holders[page]++;
        }
    return 0;
}

int kv_cache_open(struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t length,
                  struct err *e)
{
    return sequence_open_empty(c, id, max_tokens, max_tokens, length, e);
}

int kv_cache_open_some(struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t reserved,
                       uint32_t length, uint64_t from, struct err *e)
{
    return from ? sequence_open_shared(c, id, max_tokens, reserved, length, from, e)
                : sequence_open_empty(c, id, max_tokens, reserved, length, e);
}

int kv_cache_reserve(struct kv_cache *c, uint64_t id, uint32_t tokens, struct err *e)
{
    struct kv_sequence *s = kv_cache_find(c, id);
    if (!s || s->holding.kept || tokens > s->max_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu cannot grow to %u tokens",
                       (unsigned long long)id, tokens);
    uint32_t n = kv_pages_for(tokens);
    int rc = n > s->holding.n_pages ? pages_check(c, n - s->holding.n_pages, e) : 0;
    if (rc < 0 || kv_account_grow(&c->account, &s->holding, tokens))
        return rc;
    return err_set(e, HP_ENOMEM, "no memory for pages of a sequence");
}

void kv_cache_close(struct kv_cache *c, uint64_t id)
{
    struct kv_sequence *s = kv_cache_find(c, id);
    if (!s)
        return;
    for (int g = 0; g < c->kinds.n; g++)
        pages_leave(c, s, g, s->held[g].first, s->held[g].end);
    places_free(c, s);
}

int kv_cache_keep(struct kv_cache *c, uint64_t id, uint32_t length, struct err *e)
{
    int rc = share_check(c, id, length, e);
    if (rc < 0)
        return rc;
    struct kv_sequence *s = kv_cache_find(c, id),
                       *to = s->holding.kept ? s
                                             : slot_between(c, c->room.max_sequences, slots_of(c));
    if (!length)
        return err_set(e, HP_EINVAL, "nothing of sequence %llu is to be kept",
                       (unsigned long long)id);
    if (!to)
        return err_set(e, HP_EBUSY, "%d sequences are kept already", KV_KEPT_MAX);
    kv_cache_cut(c, s, length);
    s->settled = s->max_tokens = length;
    kv_account_keep(&c->account, &s->holding, length);
    if (to != s) {
        *to = *s;
        *s = (struct kv_sequence){0};
    }
    return 0;
}

/* ---- growing and shrinking ---- */

bool kv_cache_has(const struct kv_sequence *s, int group, uint32_t first, uint32_t count)
{
    const struct kv_pages *held = &s->held[group];
    return first / KV_PAGE_TOKENS >= held->first && pages_of((uint64_t)first + count) <= held->end;
}

/* Pages of the n tokens that come are the sequence's own. */
static int pages_own(struct kv_cache *c, struct stream *stream, struct kv_sequence *s, int g,
                     uint32_t n, struct err *e)
{
    uint32_t end = (uint32_t)pages_of((uint64_t)s->length + n);
    for (uint32_t i = s->length / KV_PAGE_TOKENS; i < end; i++)
        if (!page_copy(c, stream, g, &places_of(s, g)[i]))
            return pages_missing(e);
    return 0;
}

int kv_cache_grow(struct kv_cache *c, struct stream *stream, struct kv_sequence *s, uint32_t n,
                  struct err *e)
{
    int rc = 0;
    if (n > s->max_tokens - s->length)
        return err_set(e, HP_EINVAL, "sequence %llu has room for %u tokens, not for %u after %u",
                       (unsigned long long)s->id, s->max_tokens, n, s->length);
    if (kv_pages_for((uint64_t)s->length + n) > s->holding.n_pages)
        return err_set(e, HP_EBUSY,
                       "sequence %llu has %u pages reserved: %u tokens more after %u "
                       "are beyond them",
                       (unsigned long long)s->id, s->holding.n_pages, n, s->length);
    for (int g = 0; g < c->kinds.n && rc == 0; g++) {
        if (!c->pools[g].n_pages)
            continue;
        if (!pages_take(c, s, g, (uint32_t)pages_of((uint64_t)s->length + n)))
            rc = pages_missing(e);
        rc = rc < 0 ? rc : pages_own(c, stream, s, g, n, e);
    }
    if (rc < 0)
        kv_cache_cut(c, s, s->length);
    return rc;
}

void kv_cache_cut(struct kv_cache *c, struct kv_sequence *s, uint32_t length)
{
    for (int g = 0; g < c->kinds.n; g++) {
        uint32_t end = (uint32_t)pages_of(length);
        end = end > s->held[g].first ? end : s->held[g].first;
        if (end >= s->held[g].end)
            continue;
        pages_leave(c, s, g, end, s->held[g].end);
        s->held[g].end = end;
    }
    s->length = length;
}

void kv_cache_settle(struct kv_cache *c, struct kv_sequence *s, uint32_t length)
{
    s->settled = length > s->settled ? length : s->settled;
    for (int g = 0; g < c->kinds.n; g++) {
        uint32_t first = first_page(c, g, s->settled);
        first = first < s->held[g].end ? first : s->held[g].end;
        if (first <= s->held[g].first)
            continue;
        pages_leave(c, s, g, s->held[g].first, first);
        s->held[g].first = first;
    }
}
