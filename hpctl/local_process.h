/* Processes that outlive this hpctl: started in the background, known by pid and start time. */
#ifndef HP_HPCTL_LOCAL_PROCESS_H
#define HP_HPCTL_LOCAL_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

/* "running", "stopped" (SIGSTOP) or "dead"; `started` is the kernel's start time of that process: a
 * pid alone may be another's by now. */
__attribute__((returns_nonnull)) const char *local_process_state(pid_t pid, uint64_t started);
bool local_process_is_alive(pid_t pid, uint64_t started);

/* The path of another program of ours: beside hpctl, or to be found on the PATH. */
void local_program_beside(const char *name, char *out, size_t size);

/* Writes *pid and *started of a process down; where it fails, so does its start. */
struct local_noting {
    int (*note)(const void *ctx, struct err *e);
    const void *ctx;
};
/* Runs a program in a session of its own with its output appended to `log`, once it has been
 * written down: what is not, nobody can find and end. */
int local_process_start(char *const *arguments, const char *log, struct local_noting noting,
                        pid_t *pid, uint64_t *started, struct err *e);
/* HP_EIO: it has ended, with the last lines of its log. */
int local_process_died(const char *what, const char *log, struct err *e);

/* Between two looks at a process. */
void local_pause_ms(int ms);

/* Ctrl-C, SIGTERM and the terminal's end. */
void local_interrupts(sigset_t *out);
/* Whether one of them has come to who delays them (local_lock.h). */
bool local_interrupted(void);

/* The end of a log file, "" where there is none. */
void local_log_tail(const char *log, char *out, size_t size);

#endif
