/* What the files of the automaton share, from bottom to top:
 *
 *     configurations.c   places, stacks, sets of them, and steps from one to the next
 *     automaton_mask.c   masks
 *     automaton.c        matchers, and what is forgotten when there is too much
 */
#ifndef HP_MODEL_GRAMMAR_AUTOMATON_INT_H
#define HP_MODEL_GRAMMAR_AUTOMATON_INT_H

#include <pthread.h>

#include "model/grammar/automaton.h"
#include "model/grammar/state_chars.h"

enum { CONFIGURATION_DEAD = 0, STACK_BOTTOM = 0 };
enum { CONFIGURATION_STEP_EFFORT = 20 }; /* of a step that has to be found, whatever it leads to */
#define STEP_UNKNOWN UINT32_MAX
#define STATE_WHOLE UINT32_MAX /* the text is whole: a place without a rule */
#define MASK_NONE UINT32_MAX

/* A rule that goes on at state `back` when what it called ends; linked to the one below it. */
struct stack_frame {
    uint32_t back, below, depth, least; /* least: bytes from `back` to the end of all below */
};

/* A place is a state and a stack: state << 32 | stack. */
struct configuration {
    uint32_t first, count; /* of its places, sorted */
    uint32_t least;        /* bytes to a whole text */
    uint32_t local;        /* itself with the stack that all its places share taken off; UINT32_MAX:
                              not known yet */
    uint32_t shared;       /* that stack */
    uint32_t mask;         /* its slot, or MASK_NONE */
    uint32_t run;        /* where any character of `run_kinds` leads; STEP_UNKNOWN: not known yet */
    uint64_t run_kinds;  /* (char_kinds.h); 0: there are none */
    uint64_t dead_kinds; /* no character of these may come next; known when `run` is */
    bool whole;          /* the text may end here */
    bool far_exits;      /* as a local one it leaves its rules by too many tokens to list */
};

struct configurations {
    const struct grammar *grammar;
    uint8_t class_of[256], class_byte[256]; /* bytes that no edge tells apart; one of each */
    uint32_t n_classes;
    /* One byte of each class of a kind's characters (char_kinds.h), kind by kind, and how many of
     * them it stands for. */
    uint8_t kind_bytes[128], kind_counts[128], kind_first[CHAR_KIND_WIDE + 1];
    uint8_t *reads; /* [n_states]: an edge reads a byte */
    struct state_chars chars;
    struct stack_frame *frames;
    uint32_t n_frames, frame_room;
    struct configuration *list;
    uint32_t n_list, list_room;
    uint64_t *places;
    uint32_t n_places, place_room;
    uint32_t *steps; /* [n_list * n_classes]: configurations, or STEP_UNKNOWN */
    size_t n_steps, step_room;
    uint32_t *frame_slots, *list_slots; /* hash tables of numbers + 1 */
    uint32_t n_frame_slots, n_list_slots;
    /* while a set is made */
    uint64_t *work, *seen;
    uint32_t *seen_turn, turn, n_work, n_seen_slots;
    /* What a call has looked at, in places and steps of some nanoseconds each, and may. */
    uint64_t effort, effort_most;
    int status; /* why the set could not be made: HP_ELIMIT, HP_ENOMEM */
};

/* Of a grammar that outlives it; `lead`: a state that is a place at the start as well, or
 * GRAMMAR_NEVER. */
int configurations_init(struct configurations *c, const struct grammar *g, struct err *e);
void configurations_fini(struct configurations *c);
size_t configurations_bytes(const struct configurations *c);
/* Without frames and configurations, but the bottom and the dead one. */
bool configurations_clear(struct configurations *c);

/* A set is begun, gets places with all that follows without reading, and becomes a configuration's
 * number; CONFIGURATION_DEAD when it is empty, and when it could not be made (status). */
void configuration_begin(struct configurations *c);
void configuration_add(struct configurations *c, uint32_t state, uint32_t stack);
uint32_t configuration_end(struct configurations *c);
/* A frame's number; STACK_BOTTOM when there is no memory (status). */
uint32_t frame_find(struct configurations *c, uint32_t back, uint32_t below);
/* Behind a byte. */
uint32_t configuration_step(struct configurations *c, uint32_t from, uint8_t byte);
/* Of the kinds of characters that all lead to one configuration those that do so with most of what
 * vocabularies have: in list[from].run_kinds, and `run`; and those that may not come. */
void configuration_run(struct configurations *c, uint32_t from);
/* Where most characters of each kind lead, if more than half of them lead to one place (of wide
 * ones: if all do); CONFIGURATION_DEAD: they do not, or may not come. */
void configuration_kinds(struct configurations *c, uint32_t from, uint32_t to[CHAR_KINDS]);
/* Finds its local one. */
uint32_t configuration_local(struct configurations *c, uint32_t of);
/* Where the rules go on that the stack is of. */
uint32_t configuration_below(struct configurations *c, uint32_t stack);
/* The first byte of the shortest (of those the least) text; -1: it is whole. */
int configuration_next(const struct configurations *c, uint32_t of);

struct mask_slot {
    uint64_t *words;
    uint32_t owner;  /* configuration; CONFIGURATION_DEAD: free */
    uint32_t *exits; /* nodes of the tree behind which the bottom of a local one may be left */
    uint32_t n_exits, exit_room;
};

/* Nodes of the tree that are still to be looked at. */
struct nodes_ahead {
    uint32_t first, at; /* at: the configuration behind the byte above them */
    uint16_t n, run;    /* run: of the groups of first bytes, from 1 on; 0: none */
};

struct automaton {
    struct grammar *grammar;
    const struct token_tree *tree;
    pthread_mutex_t lock;
    struct configurations c;
    uint32_t lead; /* a state before the first space that is dropped, or GRAMMAR_NEVER */
    struct mask_slot *slots;
    uint32_t n_slots, slot_room, next_slot, n_words;
    struct nodes_ahead *ahead[2]; /* while a mask is made: those of this depth, and of the next */
    uint32_t n_ahead[2], ahead_room[2];
    struct matcher *matchers;
    char *text; /* the shortest text that was looked for last */
    size_t text_room;
    size_t kept_bytes; /* configurations and stacks that are kept at most */
};

/* The mask of a configuration, [n_words]; NULL: c.status says why. */
const uint64_t *automaton_mask(struct automaton *a, uint32_t of);
void automaton_masks_forget(struct automaton *a);

#endif
