/* Waiting for another thread, which ends in good time or fails the test. */
#ifndef HP_TESTS_UNIT_SEMAPHORES_H
#define HP_TESTS_UNIT_SEMAPHORES_H

#include <errno.h>
#include <semaphore.h>
#include <time.h>

#include "common/env.h"
#include "tests/test.h"

/* Seconds are longer where HP_TIME_SCALE says so. */
static inline void semaphore_wait(sem_t *s, int limit_s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(limit_s * env_time_scale());
    int rc;
    while ((rc = sem_timedwait(s, &until)) != 0 && errno == EINTR)
        ;
    assert_int_equal(rc, 0);
}

#endif
