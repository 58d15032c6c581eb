/*
 * base/names: converts dtypes, device types, layouts and memory formats between PyTorch's numbers and PyTorch's names.
 */
#include "base/base.h"
#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name_entry {
    const char *name;
    int32_t number;
    uint32_t bytes;
};

#define DTYPE_ENTRY(upper, lower, number, bytes) {#lower, number, bytes},
#define NAME_ENTRY(upper, lower, number) {#lower, number, 0},

static const struct name_entry dtypes[] = {AOTICACHE_DTYPE_LIST(DTYPE_ENTRY)};
static const struct name_entry device_types[] = {AOTICACHE_DEVICE_TYPE_LIST(NAME_ENTRY)};
static const struct name_entry layouts[] = {AOTICACHE_LAYOUT_LIST(NAME_ENTRY)};
static const struct name_entry memory_formats[] = {AOTICACHE_MEMORY_FORMAT_LIST(NAME_ENTRY)};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct name_entry *find_number(const struct name_entry *entries, size_t count, int32_t number)
{
    for (size_t i = 0; i < count; i++)
        if (entries[i].number == number)
            return &entries[i];
    return NULL;
}

static const char *name_of(const struct name_entry *entries, size_t count, int32_t number)
{
    const struct name_entry *entry = find_number(entries, count, number);
    return entry != NULL ? entry->name : NULL;
}

static aoticache_status parse(const struct name_entry *entries, size_t count, const char *name, size_t length,
                              int32_t *ret_number)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(entries[i].name) == length && memcmp(entries[i].name, name, length) == 0) {
            *ret_number = entries[i].number;
            return AOTICACHE_OK;
        }
    }
    return AOTICACHE_INVALID;
}

const char *aoticache_dtype_name(int32_t dtype)
{
    return name_of(dtypes, COUNT(dtypes), dtype);
}

aoticache_status aoticache_dtype_parse(const char *name, int32_t *ret_dtype)
{
    return name == NULL ? AOTICACHE_INVALID : parse(dtypes, COUNT(dtypes), name, strlen(name), ret_dtype);
}

size_t aoticache_dtype_size(int32_t dtype)
{
    const struct name_entry *entry = find_number(dtypes, COUNT(dtypes), dtype);
    return entry != NULL ? entry->bytes : 0;
}

const char *aoticache_layout_name(int32_t layout)
{
    return name_of(layouts, COUNT(layouts), layout);
}

aoticache_status aoticache_layout_parse(const char *name, int32_t *ret_layout)
{
    return name == NULL ? AOTICACHE_INVALID : parse(layouts, COUNT(layouts), name, strlen(name), ret_layout);
}

const char *aoticache_memory_format_name(int32_t memory_format)
{
    return name_of(memory_formats, COUNT(memory_formats), memory_format);
}

aoticache_status aoticache_memory_format_parse(const char *name, int32_t *ret_memory_format)
{
    if (name == NULL)
        return AOTICACHE_INVALID;
    return parse(memory_formats, COUNT(memory_formats), name, strlen(name), ret_memory_format);
}

aoticache_status aoticache_device_parse(const char *text, aoticache_device *ret_device)
{
    if (text == NULL || ret_device == NULL)
        return AOTICACHE_INVALID;
    const size_t length = (size_t)(strchrnul(text, ':') - text);
    aoticache_device device = {.index = -1};
    if (parse(device_types, COUNT(device_types), text, length, &device.type) != AOTICACHE_OK)
        return AOTICACHE_INVALID;
    if (text[length] == ':') {
        const char *digits = text + length + 1;
        size_t count = strspn(digits, "0123456789");
        if (count == 0 || count > 4 || digits[count] != '\0')
            return AOTICACHE_INVALID;
        device.index = atoi(digits);
    }
    *ret_device = device;
    return AOTICACHE_OK;
}

void aoticache_device_format(aoticache_device device, char ret_text[AOTICACHE_DEVICE_TEXT_BYTES])
{
    const char *name = aoticache_device_type_name(device.type);
    if (name == NULL)
        snprintf(ret_text, AOTICACHE_DEVICE_TEXT_BYTES, "device%d:%d", (int)device.type, (int)device.index);
    else if (device.index < 0)
        snprintf(ret_text, AOTICACHE_DEVICE_TEXT_BYTES, "%s", name);
    else
        snprintf(ret_text, AOTICACHE_DEVICE_TEXT_BYTES, "%s:%d", name, (int)device.index);
}
