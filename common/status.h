/* Every error code of the project, grouped by what is lost, and the text that goes with one.
 *
 * A function returns 0 when it did its work, a positive value when the work is pending, and one of
 * the negative codes below when it failed. Whoever decides that something failed writes the text
 * once, in the words of the user: what was wrong, where, and what to do next. Callers pass it on.
 */
#ifndef HP_COMMON_STATUS_H
#define HP_COMMON_STATUS_H

enum hp_status {
    HP_OK = 0,
    HP_PENDING = 1,

    /* A request is lost: its author can mend it. */
    HP_EUSAGE = -1,       /* a command line that makes no sense */
    HP_EINVAL = -2,       /* a value that is out of its range */
    HP_EPARSE = -3,       /* bytes that are not what their format says */
    HP_ENOENT = -4,       /* no such thing */
    HP_EEXIST = -5,       /* there is one of that name already */
    HP_EDENIED = -6,      /* not allowed: key, token or permission */
    HP_EUNSUPPORTED = -7, /* understood, and not something this build does */
    HP_EINFEASIBLE = -8,  /* no plan exists; does not fit */
    HP_ETIMEOUT = -9,     /* its time ran out */
    HP_ECANCELED = -10,   /* whoever asked went away */
    HP_EBUSY = -11,       /* a queue or table is full; try again later */
    HP_ELIMIT = -12,      /* a stated bound was reached */
    HP_ERATE = -13,       /* more at once than somebody may; later it is allowed */
    HP_EQUOTA = -14,      /* what somebody may use is used up */

    /* A link is lost: the peer may come back. */
    HP_ELINK = -20,      /* broken, unreachable */
    HP_EPROTO = -21,     /* a peer speaks another version, or nonsense */
    HP_ESTALE = -22,     /* a frame or message of an older generation */
    HP_ENOCLUSTER = -23, /* no coordinator answers */

    /* A node is lost, or what it holds. */
    HP_EIO = -30,      /* a file or device failed */
    HP_ENOSPACE = -31, /* the disk is full, or the store's limit is reached */
    HP_ENOMEM = -32,   /* memory ran out, or the limit that was given */
    HP_EDEVICE = -33,  /* a device failed or lacks a feature */
    HP_ECORRUPT = -34, /* content does not match its name */

    /* The run is lost: our own bug. */
    HP_EBUG = -50,
};

/* Text of one failure: UTF-8, whatever it quotes, and cut between characters. `hint` says what to
 * do next and may be empty. Zero-initialised means no error. */
struct err {
    int code;
    char text[1152];
    char hint[256];
};

/* Writes code and text (printf form) into `e`, which may be NULL, and returns `code`. Clears the
 * hint. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "no memory for WHAT": the text of want of memory. Returns HP_ENOMEM. */
int err_no_memory(struct err *e, const char *what_fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds what to do next. Returns e->code, so that it can close a chain; HP_EBUG when `e` is NULL: a
 * failure whose code is wanted even then is returned by itself. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Where the text begins with `from` (a path that means nothing to whoever reads it), it begins with
 * `to` instead. `e` may be NULL. */
void err_rename(struct err *e, const char *from, const char *to);

/* Puts "where: " before the text that is there. Returns as err_hint. */
int err_at(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A short stable word for a code ("infeasible"), used in JSON errors and logs. */
const char *status_word(int code);

/* The code of such a word; HP_EBUG when unknown. */
int status_of_word(const char *word);

/* The exit code of a program that failed so (0 done, 1 failed, 2 usage, 3 no cluster, 4 no such
 * thing, 5 not allowed, 6 infeasible, 7 timed out, 130 interrupted). */
int status_exit_code(int code);

#endif
