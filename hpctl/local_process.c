#include "hpctl/local_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOG_TAIL_BYTES = 600 };

/* State letter and start time from /proc/PID/stat; false when there is no such process. */
static bool process_stat(pid_t pid, char *state, uint64_t *started)
{
    char file[64], text[1024];
    snprintf(file, sizeof file, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name + 1, " %c", state) != 1)
        return false;
    const char *field = after_name + 2;
    for (int i = 3; i < 22 && field; i++)
        field = strchr(field + 1, ' ');
    *started = field ? strtoull(field, NULL, 10) : 0;
    return true;
}

const char *local_process_state(pid_t pid, uint64_t started)
{
    char state;
    uint64_t now_started;
    if (pid <= 0 || !process_stat(pid, &state, &now_started) || now_started != started ||
        state == 'Z' || state == 'X')
        return "dead";
    return state == 'T' || state == 't' ? "stopped" : "running";
}

bool local_process_is_alive(pid_t pid, uint64_t started)
{
    return strcmp(local_process_state(pid, started), "dead") != 0;
}

void local_pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

void local_interrupts(sigset_t *out)
{
    sigemptyset(out);
    sigaddset(out, SIGINT);
    sigaddset(out, SIGTERM);
    sigaddset(out, SIGHUP);
}

bool local_interrupted(void)
{
    sigset_t come;
    return sigpending(&come) == 0 && (sigismember(&come, SIGINT) || sigismember(&come, SIGTERM) ||
                                      sigismember(&come, SIGHUP));
}

/* Programs lie beside hpctl, in the build folder as well as where they are installed. */
void local_program_beside(const char *name, char *out, size_t size)
{
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(out, size, "%s/%s", slash ? self : ".", name);
    if (access(out, X_OK) != 0)
        snprintf(out, size, "%s", name);
}

void local_log_tail(const char *log, char *out, size_t size)
{
    FILE *f = fopen(log, "r");
    out[0] = '\0';
    if (!f)
        return;
    if (fseek(f, -(long)(size - 1), SEEK_END) != 0)
        rewind(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    fclose(f);
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == ' '))
        out[--n] = '\0';
}

/* The new process: what keeps it from running is written to `told`. */
static _Noreturn void program_run(char *const *arguments, int log, int gate, int told)
{
    int null = open("/dev/null", O_RDONLY);
    char opened;
    sigset_t none;
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    if (read(gate, &opened, 1) != 1)
        _exit(0);
    execvp(arguments[0], arguments);
    int why = errno;
    ssize_t ignored = write(told, &why, sizeof why);
    _exit(ignored ? 127 : 126);
}

/* Runs a program in the background, in a session of its own, with its output appended to `log`. It
 * gets nothing else of what hpctl's caller had open: a lock or a pipe that a daemon held would keep
 * others waiting for as long as the cluster runs. Until it has been written down it waits at a
 * gate, and ends with whoever started it. */
int local_process_start(char *const *arguments, const char *log, struct local_noting noting,
                        pid_t *pid, uint64_t *started, struct err *e)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, HP_EIO, "cannot write %s: %s", log, strerror(errno));
    int pipe_fd[2], gate[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) {
        close(fd);
        return err_set(e, HP_EIO, "cannot start %s: %s", arguments[0], strerror(errno));
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) != 0) {
        err_set(e, HP_EIO, "cannot start %s: %s", arguments[0], strerror(errno));
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        close(fd);
        return HP_EIO;
    }
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        close(gate[1]);
        program_run(arguments, fd, gate[0], pipe_fd[1]);
    }
    int why = 0, noted = 0;
    char state;
    close(pipe_fd[1]);
    close(gate[0]);
    if (*pid > 0) {
        if (!process_stat(*pid, &state, started))
            *started = 0;
        noted = noting.note(noting.ctx, e);
        if (noted == 0 && send(gate[1], "", 1, MSG_NOSIGNAL) != 1)
            why = errno;
    }
    close(gate[1]);
    bool failed = *pid < 0 || read(pipe_fd[0], &why, sizeof why) == sizeof why;
    close(pipe_fd[0]);
    close(fd);
    if (noted < 0)
        return noted;
    if (failed) {
        err_set(e, HP_EIO, "cannot start %s: %s", arguments[0], strerror(why ? why : errno));
        return err_hint(e, "it should lie beside hpctl; build all with `make`");
    }
    return 0;
}

int local_process_died(const char *what, const char *log, struct err *e)
{
    char tail[LOG_TAIL_BYTES];
    local_log_tail(log, tail, sizeof tail);
    err_set(e, HP_EIO, "%s has ended; the end of its log: %s", what, tail);
    return err_hint(e, "the whole log is %s", log);
}
