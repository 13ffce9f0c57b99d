#include "base/text.h"

/* Unicode's Default_Ignorable_Code_Point; the categories Cc, Zl, Zp and Zs except U+0020; the
 * interlinear annotation characters; and the blank Braille pattern. In ascending order. */
const hf_range hf_unsafe_ranges[] = {
    {0x0, 0x1f},        {0x7f, 0xa0},       {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},
    {0x115f, 0x1160},   {0x1680, 0x1680},   {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x2000, 0x200f},
    {0x2028, 0x202f},   {0x205f, 0x206f},   {0x2800, 0x2800}, {0x3000, 0x3000}, {0x3164, 0x3164},
    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0, 0},
};

bool hf_is_unsafe(uint32_t code) {
    const hf_range *range = hf_unsafe_ranges;
    while (range->last > 0 && range->last < code) range++;
    return range->last > 0 && range->first <= code;
}
