/*
 * tests/unit/locale_fixture: a locale whose decimal point is a comma, for tests of reading and writing numbers.
 */
#ifndef TESTS_UNIT_LOCALE_FIXTURE_H
#define TESTS_UNIT_LOCALE_FIXTURE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "own_directory.h"

/*
 * Sets the locale. If the system has none, it is compiled for the test from its source, which the package `locales`
 * has.
 */
static inline bool use_decimal_comma(void)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR", "ps_AF.UTF-8"};
    for (size_t i = 0; i < sizeof locales / sizeof locales[0]; i++)
        if (setlocale(LC_NUMERIC, locales[i]) != NULL)
            return true;
    char directory[128], command[256];
    own_directory_make(directory, sizeof directory);
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null", directory);
    bool is_made = system(command) == 0;
    setenv("LOCPATH", directory, 1);
    return is_made && setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
}

#endif
