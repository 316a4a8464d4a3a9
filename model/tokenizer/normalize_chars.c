#include "model/tokenizer/normalize_chars.h"

#include <utf8proc.h>

#include "common/utf8.h"

/* What becomes of one character. */
typedef void (*char_fn)(uint32_t c, const char *text, size_t size, struct buffer *out);

static void each_char(const struct buffer *in, char_fn each, struct buffer *out)
{
    const char *text = (const char *)in->data;
    for (size_t at = 0; at < in->size;) {
        uint32_t c;
        int length = utf8_decode(text + at, in->size - at, &c);
        if (length <= 0)
            return;
        each(c, text + at, (size_t)length, out);
        at += (size_t)length;
    }
}

bool char_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

static void char_lower(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    (void)text, (void)size;
    if (c < 0x80) {
        uint8_t lower = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        buffer_append(out, &lower, 1);
        return;
    }
    if (c == 0x130) { /* I with a dot: the one whose small letter is two */
        buffer_append(out, "i\xCC\x87", 3);
        return;
    }
    utf8_append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

void chars_lowercase(const struct buffer *in, struct buffer *out)
{
    each_char(in, char_lower, out);
}

static bool is_control(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

static void char_clean(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    if (c > ' ' && c < 0x7F)
        buffer_append(out, text, size);
    else if (c == '\t' || c == '\n' || c == '\r')
        buffer_append(out, " ", 1);
    else if (c == 0 || c == UTF8_REPLACEMENT || is_control(c))
        return;
    else if (char_is_space(c))
        buffer_append(out, " ", 1);
    else
        buffer_append(out, text, size);
}

void chars_clean(const struct buffer *in, struct buffer *out)
{
    each_char(in, char_clean, out);
}

static bool is_han(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static void char_space_han(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    bool han = is_han(c);
    buffer_append(out, " ", han);
    buffer_append(out, text, size);
    buffer_append(out, " ", han);
}

void chars_space_han(const struct buffer *in, struct buffer *out)
{
    each_char(in, char_space_han, out);
}

static void char_unless_mark(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    if (c < 0x80 || utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_MN)
        buffer_append(out, text, size);
}

static void char_unless_any_mark(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k != UTF8PROC_CATEGORY_MN && k != UTF8PROC_CATEGORY_MC && k != UTF8PROC_CATEGORY_ME)
        buffer_append(out, text, size);
}

void chars_strip_marks(const struct buffer *in, bool all, struct buffer *out)
{
    each_char(in, all ? char_unless_any_mark : char_unless_mark, out);
}

static void char_nmt(uint32_t c, const char *text, size_t size, struct buffer *out)
{
    if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
        return;
    if (c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == UTF8_REPLACEMENT)
        buffer_append(out, " ", 1);
    else
        buffer_append(out, text, size);
}

void chars_nmt(const struct buffer *in, struct buffer *out)
{
    each_char(in, char_nmt, out);
}

void chars_strip_ends(const struct buffer *in, bool left, bool right, struct buffer *out)
{
    const char *text = (const char *)in->data;
    size_t start = 0, end = in->size;
    uint32_t c;
    for (int n; left && start < end && (n = utf8_decode(text + start, end - start, &c)) > 0 &&
                char_is_space(c);)
        start += (size_t)n;
    while (right && end > start) {
        size_t last = utf8_previous(text, end);
        if (utf8_decode(text + last, end - last, &c) <= 0 || !char_is_space(c))
            break;
        end = last;
    }
    buffer_append(out, text + start, end - start);
}

void chars_squeeze(const struct buffer *in, struct buffer *out)
{
    const char *text = (const char *)in->data;
    size_t before = out->size;
    for (size_t at = 0; at < in->size;) {
        size_t blanks = 0, word;
        while (at + blanks < in->size && text[at + blanks] == ' ')
            blanks++;
        at += blanks;
        for (word = 0; at + word < in->size && text[at + word] != ' ';)
            word++;
        if (word > 0 && out->size > before)
            buffer_append(out, " ", 1);
        buffer_append(out, text + at, word);
        at += word;
    }
}
