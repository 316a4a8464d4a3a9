#include <string.h>

#include "common/bytes.h"
#include "tests/message_fixture.h"
#include "tests/test.h"
#include "transport/message_ref.h"

TEST(a_message_lives_until_its_last_holder_lets_go)
{
    struct message m = {.type = MESSAGE_REFUSED, .id = 9};
    m.u.refused = (struct message_refused){.code = "denied", .text = "no", .hint = ""};
    struct message_ref *first = message_of_test(&m), *second = message_ref_hold(first);
    message_ref_release(first);
    assert_int_equal(second->message.id, 9);
    assert_string_equal(second->message.u.refused.text, "no");
    message_ref_release(second);
    message_ref_release(NULL);
}

TEST(what_is_decoded_does_not_need_the_bytes_that_came)
{
    struct message m = {.type = MESSAGE_REFUSED};
    struct buffer bytes = {0};
    struct message_ref *ref;
    struct err e = {0};
    m.u.refused = (struct message_refused){.code = "denied", .text = "no", .hint = "a hint"};
    message_encode(&m, &bytes);
    assert_int_equal(message_ref_decode(bytes.data, bytes.size, &ref, &e), 0);
    memset(bytes.data, 0, bytes.size);
    buffer_free(&bytes);
    assert_string_equal(ref->message.u.refused.hint, "a hint");
    message_ref_release(ref);
}

TEST(what_is_no_message_gives_no_reference)
{
    struct message_ref *ref = NULL;
    struct err e = {0};
    assert_int_equal(message_ref_decode((const uint8_t *)"?", 1, &ref, &e), HP_EPARSE);
    assert_null(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_lives_until_its_last_holder_lets_go),
        cmocka_unit_test(what_is_decoded_does_not_need_the_bytes_that_came),
        cmocka_unit_test(what_is_no_message_gives_no_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
