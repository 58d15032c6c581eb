/*
 * cache/gc/team: team.h says what for.
 */
#include "cache/gc/team.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/threads.h"

#define MOST 16
#define STACK_BYTES (256 * 1024)

struct aoticache_team {
    pthread_mutex_t mutex; /* of all but the threads, which are the caller's business */
    pthread_cond_t has_work, is_idle;
    void (*work)(void *argument);
    void *argument;
    size_t places; /* for threads that may begin */
    size_t busy;
    bool is_over;
    pthread_t threads[MOST];
    size_t thread_count;
};

static void *serve(void *user)
{
    aoticache_team *team = user;
    pthread_mutex_lock(&team->mutex);
    for (;;) {
        while (team->places == 0 && !team->is_over)
            pthread_cond_wait(&team->has_work, &team->mutex);
        if (team->is_over)
            break;
        team->places--;
        team->busy++;
        pthread_mutex_unlock(&team->mutex);
        team->work(team->argument); /* neither changes while somebody is busy */
        pthread_mutex_lock(&team->mutex);
        if (--team->busy == 0)
            pthread_cond_signal(&team->is_idle);
    }
    pthread_mutex_unlock(&team->mutex);
    return NULL;
}

static void enlarge(aoticache_team *team, size_t count)
{
    pthread_attr_t attributes;
    count = count < MOST ? count : MOST;
    if (count <= team->thread_count || pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    team->thread_count += aoticache_threads_start(team->threads + team->thread_count, count - team->thread_count,
                                                  &attributes, serve, team);
    pthread_attr_destroy(&attributes);
}

aoticache_team *aoticache_team_new(void)
{
    aoticache_team *team = calloc(1, sizeof *team);
    if (team == NULL)
        return NULL;
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->has_work, NULL);
    pthread_cond_init(&team->is_idle, NULL);
    return team;
}

void aoticache_team_free(aoticache_team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->mutex);
    team->is_over = true;
    pthread_cond_broadcast(&team->has_work);
    pthread_mutex_unlock(&team->mutex);
    while (team->thread_count > 0)
        pthread_join(team->threads[--team->thread_count], NULL);
    pthread_cond_destroy(&team->is_idle);
    pthread_cond_destroy(&team->has_work);
    pthread_mutex_destroy(&team->mutex);
    free(team);
}

void aoticache_team_start(aoticache_team *team, size_t count, void (*work)(void *argument), void *argument)
{
    enlarge(team, count);
    pthread_mutex_lock(&team->mutex);
    team->work = work;
    team->argument = argument;
    team->places = count < team->thread_count ? count : team->thread_count;
    for (size_t i = 0; i < team->places; i++)
        pthread_cond_signal(&team->has_work);
    pthread_mutex_unlock(&team->mutex);
}

void aoticache_team_wait(aoticache_team *team)
{
    pthread_mutex_lock(&team->mutex);
    team->places = 0;
    while (team->busy > 0)
        pthread_cond_wait(&team->is_idle, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
}
