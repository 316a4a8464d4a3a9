#include "hpctl/verb_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bytes.h"

/* Reads a pipe to its end. */
static void pipe_drain(int fd, struct buffer *out)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            buffer_append(out, piece, (size_t)n);
}

static int verb_failed(const char *verb, int status, json_t *answer, struct err *e)
{
    const json_t *error = json_object_get(answer, "error");
    const char *code = json_string_value(json_object_get(error, "code")),
               *text = json_string_value(json_object_get(error, "message"));
    const char *hint = json_string_value(json_object_get(error, "hint"));
    err_set(e, code ? status_of_word(code) : HP_EIO, "%s: %s", verb,
            text                  ? text
            : WIFSIGNALED(status) ? "was killed"
                                  : "failed");
    return err_hint(e, "%s", hint ? hint : "");
}

int verb_run(const char *const *arguments, json_t **result, struct err *e)
{
    const char *argv[VERB_MAX_ARGUMENTS + 4] = {"hpctl"};
    int n = 1, fds[2], status = 0;
    while (arguments[n - 1] && n <= VERB_MAX_ARGUMENTS) {
        argv[n] = arguments[n - 1];
        n++;
    }
    argv[n++] = "-o";
    argv[n] = "json";
    fflush(NULL);
    if (pipe(fds) != 0)
        return err_set(e, HP_EIO, "cannot run %s: %s", arguments[0], strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        execv("/proc/self/exe", (char *const *)(void *)argv);
        _exit(127);
    }
    struct buffer out = {0};
    close(fds[1]);
    pipe_drain(fds[0], &out);
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = 127 << 8;
    json_t *answer = out.size ? json_loadb((const char *)out.data, out.size, 0, NULL) : NULL;
    buffer_free(&out);
    int rc = status ? verb_failed(arguments[0], status, answer, e) : 0;
    if (rc == 0 && result)
        *result = json_incref(answer);
    json_decref(answer);
    return rc;
}
