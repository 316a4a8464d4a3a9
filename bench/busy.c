/* What a pool of two threads makes of a box that others use too: two processes spin beside it, one
 * for each of its two cores. The same work in parts, by the pool operator after operator and by two
 * threads that never wait for each other, who get the fair share; in turn. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/backend/cpu/threads.h"
#include "common/doubles.h"

enum { THREADS = 2, OPERATORS = 2000, PARTS = 8, PART_TURNS = 12000, ROUNDS = 7 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Some ten microseconds of arithmetic. */
static void part_run(void *ctx, int thread, uint32_t part)
{
    volatile uint32_t *sink = ctx;
    uint32_t x = part + 1;
    for (int i = 0; i < PART_TURNS; i++)
        x = x * 1664525 + 1013904223;
    sink[thread * 64] = x;
}

static uint32_t sinks[(THREADS + 1) * 64];

static void *alone_main(void *arg)
{
    for (int i = 0; i < OPERATORS * PARTS / THREADS; i++)
        part_run(sinks, *(const int *)arg, (uint32_t)i);
    return NULL;
}

static double apart_seconds(void)
{
    pthread_t threads[THREADS];
    int names[THREADS], n = 0;
    double start = seconds();
    for (int i = 0; i < THREADS; i++) {
        names[i] = i;
        n += pthread_create(&threads[i], NULL, alone_main, &names[i]) == 0;
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return seconds() - start;
}

static double pool_seconds(struct threads *t)
{
    double start = seconds();
    for (int i = 0; i < OPERATORS; i++)
        threads_run(t, PARTS, part_run, sinks);
    return seconds() - start;
}

static void compare(struct threads *t, const char *beside)
{
    double ratios[ROUNDS], pool[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double apart = apart_seconds();
        pool[i] = pool_seconds(t);
        ratios[i] = pool[i] / apart;
    }
    doubles_sort(ratios, ROUNDS);
    doubles_sort(pool, ROUNDS);
    printf("%-28s %6.1f us an operator, %.2f of the fair share's time (%.2f to %.2f)\n", beside,
           doubles_median(pool, ROUNDS) / OPERATORS * 1e6, doubles_median(ratios, ROUNDS),
           ratios[0], ratios[ROUNDS - 1]);
}

int main(void)
{
    struct threads *t;
    struct err e = {0};
    pid_t spinners[THREADS];
    if (threads_create(THREADS, NULL, 0, &t, &e) < 0) {
        printf("%s\n", e.text);
        return 1;
    }
    compare(t, "nothing beside");
    for (int i = 0; i < THREADS; i++) {
        spinners[i] = fork();
        if (spinners[i] == 0)
            for (volatile uint32_t x = 0;; x = x + 1)
                ;
    }
    compare(t, "two processes spin beside");
    for (int i = 0; i < THREADS; i++)
        if (spinners[i] > 0) {
            kill(spinners[i], SIGKILL);
            waitpid(spinners[i], NULL, 0);
        }
    threads_destroy(&t);
    return 0;
}
