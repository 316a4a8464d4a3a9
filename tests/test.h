/* What the tests in C include of cmocka, whose header wants the system's before it. */
#ifndef HP_TESTS_TEST_H
#define HP_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* A header of its own block: sorting must not move it up. */

#include <cmocka.h>

/* A test without a state of its own. Its name is a claim. */
#define TEST(name) static void name(void **state __attribute__((unused)))

#endif
