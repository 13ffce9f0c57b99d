package main

import (
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

func verdict(t *testing.T, lines ...string) porcupine.CheckResult {
	history, err := read(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return check(history)
}

func TestHistories(t *testing.T) {
	for _, each := range []struct {
		name string
		want porcupine.CheckResult
		ops  []string
	}{
		{"one after the other", porcupine.Ok, []string{
			"a take w1 0 10 x 1", "a holds w1 20 21 x 1", "a free w1 30 40 x 1", "a take w2 41 50 y 2"}},
		{"two at once", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a take w2 11 20 y 2", "a free w1 30 40 x 1"}},
		{"two at once, by what is believed", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a take w2 11 20 y 2", "a holds w1 30 31 x 1", "a end w1 5 -1 x 1"}},
		{"two keys", porcupine.Ok, []string{"a take w1 0 10 x 1", "b take w2 0 10 y 1"}},
		{"during the release", porcupine.Ok, []string{
			"a take w1 0 10 x 1", "a free w1 20 60 x 1", "a take w2 15 50 y 2"}},
		{"before the release", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a take w2 12 19 y 2", "a free w1 20 60 x 1"}},
		{"entered again", porcupine.Ok, []string{"a take w1 0 10 x 1", "a take w1 20 30 x 1", "a free w1 40 50 x 1"}},
		{"entered again with a token of another", porcupine.Illegal, []string{
			"a take w1 0 10 x 2", "a take w1 20 30 x 3"}},
		{"a token that falls", porcupine.Illegal, []string{
			"a take w1 0 10 x 2", "a free w1 20 30 x 2", "a take w2 40 50 y 1"}},
		{"after the lease", porcupine.Ok, []string{
			"a take w1 0 10 x 1", "a end w1 90 -1 x 1", "a take w2 91 99 y 2"}},
		{"before the lease was over", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a end w1 90 -1 x 1", "a take w2 80 89 y 2"}},
		{"a release that came", porcupine.Ok, []string{
			"a take w1 0 10 x 1", "a maybe w1 20 -1 x 1", "a take w2 80 89 y 2"}},
		{"a release that did not come", porcupine.Ok, []string{
			"a take w1 0 10 x 1", "a maybe w1 20 -1 x 1", "a holds w1 80 89 x 1"}},
		{"a release that came, and was believed in after", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a maybe w1 20 -1 x 1", "a take w2 30 40 y 2", "a holds w1 80 89 x 1"}},
		{"released, and believed in after", porcupine.Illegal, []string{
			"a take w1 0 10 x 1", "a free w1 20 30 x 1", "a holds w1 40 41 x 1"}},
	} {
		if got := verdict(t, each.ops...); got != each.want {
			t.Errorf("%s: %s, not %s", each.name, got, each.want)
		}
	}
}
