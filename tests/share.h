/* How much of a long loop over cases a test goes through. HP_TEST_SHARE=6 asks for a sixth, where
 * each case takes long and another run of the same tests goes through all: .ci/run's under
 * sanitizers, beside its ordinary one. */
#ifndef HP_TESTS_SHARE_H
#define HP_TESTS_SHARE_H

#include <stdlib.h>

/* Every so manieth case is tried; 1 where HP_TEST_SHARE says nothing. */
static inline int test_stride(void)
{
    const char *text = getenv("HP_TEST_SHARE");
    int stride = text ? atoi(text) : 1;
    return stride > 1 ? stride : 1;
}

/* Of so many cases those to try, at least one. */
static inline int test_share(int cases)
{
    return (cases + test_stride() - 1) / test_stride();
}

#endif
