#include "tests/test.h"
#include "transport/stage_state.h"

/* Peers of other versions know them: these words are the protocol. */
TEST(states_of_stages_have_the_words_of_the_protocol)
{
    static const char *const words[] = {"fetching", "loading",  "warming", "ready",
                                        "failed",   "unloaded", "copied",  "uncopied"};
    assert_int_equal(sizeof words / sizeof *words, STAGE_STATES);
    for (unsigned i = 0; i < STAGE_STATES; i++) {
        assert_string_equal(stage_states[i].word, words[i]);
        assert_int_equal(stage_state_of_word(words[i]), i);
    }
    assert_int_equal(stage_state_of_word(""), STAGE_STATES);
    assert_int_equal(stage_state_of_word("Ready"), STAGE_STATES);
}

TEST(states_of_keys_and_values_have_the_words_of_the_protocol)
{
    static const char *const words[] = {"awaited", "received", "sent", "failed"};
    assert_int_equal(sizeof words / sizeof *words, KV_STATES);
    for (unsigned i = 0; i < KV_STATES; i++) {
        assert_string_equal(kv_state_words[i], words[i]);
        assert_int_equal(kv_state_of_word(words[i]), i);
    }
    assert_int_equal(kv_state_of_word("send"), KV_STATES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_stages_have_the_words_of_the_protocol),
        cmocka_unit_test(states_of_keys_and_values_have_the_words_of_the_protocol),
    };
    return cmocka_run_group_tests_name("stage_state", tests, NULL, NULL);
}
