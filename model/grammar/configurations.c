/* Owns configurations: sets of places, each kept once, and the steps between them. */
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/grammar/automaton_int.h"

enum {
    FEW_PLACES = 16, /* that are looked for one by one */
    FIRST_SLOTS = 1024,
    HARD_FACTOR = 4, /* of AUTOMATON_KEPT_BYTES, within one call */
    SATURATED = 1 << 30
};

static uint64_t place_of(uint32_t state, uint32_t stack)
{
    return (uint64_t)state << 32 | stack;
}

static uint64_t number_mix(uint64_t v)
{
    v ^= v >> 31;
    v *= UINT64_C(0x9E3779B97F4A7C15);
    return v ^ v >> 29;
}

static uint32_t least_sum(uint32_t a, uint32_t b)
{
    return a == GRAMMAR_NEVER || b == GRAMMAR_NEVER ? GRAMMAR_NEVER
           : a + b < SATURATED                      ? a + b
                                                    : SATURATED;
}

/* ---- frames ---- */

static uint64_t frame_hash(uint32_t back, uint32_t below)
{
    return number_mix(place_of(back, below));
}

static bool frame_slots_grow(struct configurations *c)
{
    uint32_t n = 2 * c->n_frame_slots;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 1; i < c->n_frames; i++) {
        uint32_t at = (uint32_t)frame_hash(c->frames[i].back, c->frames[i].below) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = i + 1;
    }
    free(c->frame_slots);
    c->frame_slots = slots;
    c->n_frame_slots = n;
    return true;
}

uint32_t frame_find(struct configurations *c, uint32_t back, uint32_t below)
{
    uint32_t at = (uint32_t)frame_hash(back, below) & (c->n_frame_slots - 1);
    for (; c->frame_slots[at]; at = (at + 1) & (c->n_frame_slots - 1)) {
        const struct stack_frame *f = &c->frames[c->frame_slots[at] - 1];
        if (f->back == back && f->below == below)
            return c->frame_slots[at] - 1;
    }
    struct stack_frame made = {back, below, c->frames[below].depth + 1,
                               least_sum(c->grammar->least[back], c->frames[below].least)};
    if (!vector_push(c->frames, c->n_frames, c->frame_room, made)) {
        c->status = HP_ENOMEM;
        return STACK_BOTTOM;
    }
    c->frame_slots[at] = c->n_frames;
    if (2 * c->n_frames > c->n_frame_slots && !frame_slots_grow(c))
        c->status = HP_ENOMEM;
    return c->n_frames - 1;
}

/* ---- sets ---- */

void configuration_begin(struct configurations *c)
{
    c->n_work = 0;
}

/* Whether a place is among the work; from now on it is. */
static bool seen_enter(struct configurations *c, uint64_t place)
{
    uint32_t at = (uint32_t)number_mix(place) & (c->n_seen_slots - 1);
    for (; c->seen_turn[at] == c->turn; at = (at + 1) & (c->n_seen_slots - 1))
        if (c->seen[at] == place)
            return true;
    c->seen_turn[at] = c->turn;
    c->seen[at] = place;
    return false;
}

static bool seen_grow(struct configurations *c)
{
    uint32_t n = c->n_seen_slots ? 4 * c->n_seen_slots : 8 * FEW_PLACES;
    free(c->seen);
    free(c->seen_turn);
    c->seen = calloc(n, sizeof *c->seen);
    c->seen_turn = calloc(n, sizeof *c->seen_turn);
    c->n_seen_slots = c->seen && c->seen_turn ? n : 0;
    c->turn = 0;
    return c->n_seen_slots;
}

/* All work in a table, which is as small as it may be: it is to stay in the caches. */
static void seen_load(struct configurations *c)
{
    if (2 * c->n_work > c->n_seen_slots && !seen_grow(c)) {
        c->status = HP_ENOMEM;
        return;
    }
    if (++c->turn == 0) {
        memset(c->seen_turn, 0, c->n_seen_slots * sizeof *c->seen_turn);
        c->turn = 1;
    }
    for (uint32_t i = 0; i < c->n_work; i++)
        seen_enter(c, c->work[i]);
}

static bool place_listed(const struct configurations *c, uint64_t place)
{
    for (uint32_t i = 0; i < c->n_work; i++)
        if (c->work[i] == place)
            return true;
    return false;
}

static void place_add(struct configurations *c, uint32_t state, uint32_t stack)
{
    uint64_t place = place_of(state, stack);
    c->effort += 2;
    if (c->status < 0 || (c->n_work < FEW_PLACES ? place_listed(c, place) : seen_enter(c, place)))
        return;
    if (c->n_work >= AUTOMATON_MAX_PLACES) {
        c->status = HP_ELIMIT;
        return;
    }
    c->work[c->n_work++] = place;
    if (c->n_work == FEW_PLACES || (c->n_work > FEW_PLACES && 2 * c->n_work > c->n_seen_slots))
        seen_load(c);
}

static void state_follow(struct configurations *c, uint32_t state, uint32_t stack)
{
    const struct grammar *g = c->grammar;
    if (g->ends[state]) {
        if (stack == STACK_BOTTOM)
            place_add(c, STATE_WHOLE, STACK_BOTTOM);
        else
            place_add(c, c->frames[stack].back, c->frames[stack].below);
    }
    c->effort += g->first[state + 1] - g->first[state];
    for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
        const struct grammar_edge *edge = &g->edges[i];
        if (edge->kind == GRAMMAR_BYTES || g->least[edge->to] == GRAMMAR_NEVER)
            continue;
        if (edge->kind == GRAMMAR_NOTHING) {
            place_add(c, edge->to, stack);
            continue;
        }
        uint32_t start = g->starts[edge->rule];
        if (g->least[start] != GRAMMAR_NEVER)
            place_add(c, start, g->tails[edge->to] ? stack : frame_find(c, edge->to, stack));
    }
}

void configuration_add(struct configurations *c, uint32_t state, uint32_t stack)
{
    uint32_t done = c->n_work;
    if (state == STATE_WHOLE || c->grammar->least[state] != GRAMMAR_NEVER)
        place_add(c, state, stack);
    for (; done < c->n_work && c->status == 0; done++) {
        uint64_t place = c->work[done];
        if (place >> 32 != STATE_WHOLE)
            state_follow(c, (uint32_t)(place >> 32), (uint32_t)place);
    }
}

static int places_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Only places that read, and the whole text, stay. */
static uint32_t places_keep(struct configurations *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_work; i++) {
        uint32_t state = (uint32_t)(c->work[i] >> 32);
        if (state == STATE_WHOLE || c->reads[state])
            c->work[n++] = c->work[i];
    }
    if (n > 16) {
        c->effort += 8 * (uint64_t)n;
        qsort(c->work, n, sizeof *c->work, places_compare);
        return n;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint64_t place = c->work[i];
        uint32_t k = i;
        for (; k && c->work[k - 1] > place; k--)
            c->work[k] = c->work[k - 1];
        c->work[k] = place;
    }
    return n;
}

static uint64_t places_hash(const uint64_t *places, uint32_t n)
{
    uint64_t h = n;
    for (uint32_t i = 0; i < n; i++)
        h = number_mix(h ^ places[i]) + i;
    return number_mix(h);
}

static bool list_slots_grow(struct configurations *c)
{
    uint32_t n = 2 * c->n_list_slots;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 1; i < c->n_list; i++) {
        const struct configuration *k = &c->list[i];
        uint32_t at = (uint32_t)places_hash(c->places + k->first, k->count) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = i + 1;
    }
    free(c->list_slots);
    c->list_slots = slots;
    c->n_list_slots = n;
    return true;
}

static uint32_t configuration_make(struct configurations *c, uint32_t n, uint32_t slot)
{
    struct configuration made = {.first = c->n_places,
                                 .count = n,
                                 .least = GRAMMAR_NEVER,
                                 .local = UINT32_MAX,
                                 .run = STEP_UNKNOWN,
                                 .mask = MASK_NONE};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t state = (uint32_t)(c->work[i] >> 32), stack = (uint32_t)c->work[i];
        uint32_t least =
            state == STATE_WHOLE ? 0 : least_sum(c->grammar->least[state], c->frames[stack].least);
        made.whole = made.whole || state == STATE_WHOLE;
        made.least = least < made.least ? least : made.least;
    }
    if (configurations_bytes(c) > (size_t)HARD_FACTOR * AUTOMATON_KEPT_BYTES) {
        c->status = HP_ELIMIT;
        return CONFIGURATION_DEAD;
    }
    if (!vector_reserve(c->places, c->place_room, c->n_places + n) ||
        !vector_reserve(c->steps, c->step_room, c->n_steps + c->n_classes) ||
        !vector_push(c->list, c->n_list, c->list_room, made)) {
        c->status = HP_ENOMEM;
        return CONFIGURATION_DEAD;
    }
    if (n)
        memcpy(c->places + c->n_places, c->work, n * sizeof *c->work);
    c->n_places += n;
    memset(c->steps + c->n_steps, 0xFF, c->n_classes * sizeof *c->steps);
    c->n_steps += c->n_classes;
    c->list_slots[slot] = c->n_list;
    if (2 * c->n_list > c->n_list_slots && !list_slots_grow(c))
        c->status = HP_ENOMEM;
    return c->n_list - 1;
}

uint32_t configuration_end(struct configurations *c)
{
    if (c->status < 0)
        return CONFIGURATION_DEAD;
    uint32_t n = places_keep(c);
    if (!n)
        return CONFIGURATION_DEAD;
    uint32_t at = (uint32_t)places_hash(c->work, n) & (c->n_list_slots - 1);
    for (; c->list_slots[at]; at = (at + 1) & (c->n_list_slots - 1)) {
        const struct configuration *k = &c->list[c->list_slots[at] - 1];
        if (k->count == n && memcmp(c->places + k->first, c->work, n * sizeof *c->work) == 0)
            return c->list_slots[at] - 1;
    }
    return configuration_make(c, n, at);
}

/* ---- from one to the next ---- */

struct bytes_alike {
    uint32_t low, high;
};

/* Adds where a byte leads from a place. `alike`: bytes around it, of which those stay that no edge
 * of the place tells apart from it. */
static void place_step(struct configurations *c, uint64_t place, uint8_t byte,
                       struct bytes_alike *alike)
{
    const struct grammar *g = c->grammar;
    uint32_t state = (uint32_t)(place >> 32);
    c->effort += 1 + g->first[state + 1] - g->first[state];
    for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++) {
        struct grammar_edge edge = g->edges[i];
        if (edge.kind != GRAMMAR_BYTES)
            continue;
        bool below = byte<edge.low, above = byte> edge.high, within = !below && !above;
        uint32_t low = within  ? edge.low
                       : above ? edge.high + 1u
                               : 0,
                 high = within  ? edge.high
                        : below ? edge.low - 1u
                                : 255;
        alike->low = low > alike->low ? low : alike->low;
        alike->high = high < alike->high ? high : alike->high;
        if (within)
            configuration_add(c, edge.to, (uint32_t)place);
    }
}

/* A byte that is looked at finds the steps of all that are like it here: there are many classes
 * since other places tell bytes apart. */
uint32_t configuration_step(struct configurations *c, uint32_t from, uint8_t byte)
{
    size_t steps = (size_t)from * c->n_classes;
    if (c->steps[steps + c->class_of[byte]] != STEP_UNKNOWN)
        return c->steps[steps + c->class_of[byte]];
    struct configuration k = c->list[from];
    struct bytes_alike alike = {0, 255};
    c->effort += CONFIGURATION_STEP_EFFORT;
    if (c->effort > c->effort_most) {
        c->status = c->status ? c->status : HP_ELIMIT;
        return CONFIGURATION_DEAD;
    }
    configuration_begin(c);
    for (uint32_t i = 0; i < k.count; i++)
        if (c->places[k.first + i] >> 32 != STATE_WHOLE)
            place_step(c, c->places[k.first + i], byte, &alike);
    uint32_t to = configuration_end(c);
    for (int i = c->class_of[alike.low]; c->status == 0 && i <= c->class_of[alike.high]; i++)
        c->steps[steps + (size_t)i] = to;
    return to;
}

/* The deepest frame that both stand on. */
static uint32_t frame_shared(struct configurations *c, uint32_t a, uint32_t b)
{
    for (; a != b; c->effort++) {
        if (c->frames[a].depth >= c->frames[b].depth && a != STACK_BOTTOM)
            a = c->frames[a].below;
        else
            b = c->frames[b].below;
    }
    return a;
}

/* The same stack with `shared` taken off from below. */
static uint32_t stack_lift(struct configurations *c, uint32_t stack, uint32_t shared)
{
    uint32_t n = c->frames[stack].depth - c->frames[shared].depth, made = STACK_BOTTOM;
    c->effort += 2 * n + (uint64_t)n * n / 2;
    for (uint32_t i = n; i > 0; i--) { /* from below; what is lifted is shallow */
        uint32_t at = stack;
        for (uint32_t k = 1; k < i; k++)
            at = c->frames[at].below;
        made = frame_find(c, c->frames[at].back, made);
    }
    return made;
}

uint32_t configuration_local(struct configurations *c, uint32_t of)
{
    struct configuration k = c->list[of];
    if (k.local != UINT32_MAX)
        return k.local;
    uint32_t shared = (uint32_t)c->places[k.first], deepest = 0;
    for (uint32_t i = 0; i < k.count; i++)
        shared = frame_shared(c, shared, (uint32_t)c->places[k.first + i]);
    for (uint32_t i = 0; i < k.count; i++) {
        uint32_t depth = c->frames[(uint32_t)c->places[k.first + i]].depth;
        deepest = depth > deepest ? depth : deepest;
    }
    uint32_t local = of;
    if (shared != STACK_BOTTOM && deepest - c->frames[shared].depth <= 64) {
        configuration_begin(c);
        for (uint32_t i = 0; i < k.count && c->status == 0; i++) {
            uint64_t place = c->places[k.first + i];
            uint32_t lifted = stack_lift(c, (uint32_t)place, shared);
            place_add(c, (uint32_t)(place >> 32), lifted);
        }
        local = configuration_end(c);
    } else {
        shared = STACK_BOTTOM;
    }
    if (c->status < 0)
        return CONFIGURATION_DEAD;
    c->list[of].local = local;
    c->list[of].shared = shared;
    return local;
}

uint32_t configuration_below(struct configurations *c, uint32_t stack)
{
    configuration_begin(c);
    configuration_add(c, c->frames[stack].back, c->frames[stack].below);
    return configuration_end(c);
}

int configuration_next(const struct configurations *c, uint32_t of)
{
    const struct grammar *g = c->grammar;
    const struct configuration *k = &c->list[of];
    int best = -1;
    if (k->least == 0)
        return -1;
    for (uint32_t i = 0; i < k->count; i++) {
        uint64_t place = c->places[k->first + i];
        uint32_t state = (uint32_t)(place >> 32), under = c->frames[(uint32_t)place].least;
        if (least_sum(g->least[state], under) != k->least)
            continue;
        for (uint32_t edge = g->first[state]; edge < g->first[state + 1]; edge++)
            if (g->edges[edge].kind == GRAMMAR_BYTES &&
                least_sum(g->least[g->edges[edge].to], under) + 1 == k->least &&
                (best < 0 || g->edges[edge].low < best))
                best = g->edges[edge].low;
    }
    return best;
}

/* ---- memory ---- */

size_t configurations_bytes(const struct configurations *c)
{
    return c->frame_room * sizeof *c->frames + c->list_room * sizeof *c->list +
           c->place_room * sizeof *c->places + c->step_room * sizeof *c->steps +
           ((size_t)c->n_frame_slots + c->n_list_slots) * sizeof *c->list_slots;
}

static void kinds_divide(struct configurations *c)
{
    int n = 0;
    for (int kind = 0; kind < CHAR_KIND_WIDE; kind++) {
        c->kind_first[kind] = (uint8_t)n;
        for (int b = 0, last = -1; b < 0x80; b++)
            if (char_kind_of((uint8_t)b) == kind) {
                if (c->class_of[b] != last)
                    c->kind_bytes[n++] = (uint8_t)b;
                last = c->class_of[b];
                c->kind_counts[n - 1]++;
            }
    }
    c->kind_first[CHAR_KIND_WIDE] = (uint8_t)n;
}

static void bytes_divide(struct configurations *c)
{
    const struct grammar *g = c->grammar;
    bool cut[257] = {true};
    for (uint32_t i = 0; i < g->n_edges; i++)
        if (g->edges[i].kind == GRAMMAR_BYTES)
            cut[g->edges[i].low] = cut[g->edges[i].high + 1] = true;
    for (int b = 0; b < 256; b++) {
        if (cut[b])
            c->class_byte[c->n_classes++] = (uint8_t)b;
        c->class_of[b] = (uint8_t)(c->n_classes - 1);
    }
    kinds_divide(c);
}

bool configurations_clear(struct configurations *c)
{
    struct stack_frame bottom = {0};
    struct configuration dead = {
        .local = CONFIGURATION_DEAD, .least = GRAMMAR_NEVER, .mask = MASK_NONE};
    free(c->frames);
    free(c->list);
    free(c->places);
    free(c->steps);
    free(c->frame_slots);
    free(c->list_slots);
    c->frames = NULL;
    c->list = NULL;
    c->places = NULL;
    c->steps = NULL;
    c->n_frames = c->frame_room = c->n_list = c->list_room = c->n_places = c->place_room = 0;
    c->n_steps = c->step_room = 0;
    c->status = 0;
    c->n_frame_slots = c->n_list_slots = FIRST_SLOTS;
    c->frame_slots = calloc(FIRST_SLOTS, sizeof *c->frame_slots);
    c->list_slots = calloc(FIRST_SLOTS, sizeof *c->list_slots);
    if (!c->frame_slots || !c->list_slots ||
        !vector_push(c->frames, c->n_frames, c->frame_room, bottom) ||
        !vector_push(c->list, c->n_list, c->list_room, dead) ||
        !vector_reserve(c->steps, c->step_room, c->n_classes))
        return false;
    memset(c->steps, 0, c->n_classes * sizeof *c->steps);
    c->n_steps = c->n_classes;
    return true;
}

int configurations_init(struct configurations *c, const struct grammar *g, struct err *e)
{
    *c = (struct configurations){.grammar = g};
    bytes_divide(c);
    c->reads = calloc(g->n_states + 1u, 1);
    c->work = calloc(AUTOMATON_MAX_PLACES, sizeof *c->work);
    if (!c->reads || !c->work || !state_chars_init(&c->chars, g) || !configurations_clear(c)) {
        configurations_fini(c);
        return err_no_memory(e, "a grammar's automaton");
    }
    for (uint32_t state = 0; state < g->n_states; state++)
        for (uint32_t i = g->first[state]; i < g->first[state + 1]; i++)
            c->reads[state] |= g->edges[i].kind == GRAMMAR_BYTES;
    return 0;
}

void configurations_fini(struct configurations *c)
{
    free(c->reads);
    free(c->frames);
    free(c->list);
    free(c->places);
    free(c->steps);
    free(c->frame_slots);
    free(c->list_slots);
    free(c->work);
    free(c->seen);
    free(c->seen_turn);
    state_chars_fini(&c->chars);
    *c = (struct configurations){0};
}
