// Package edits measures how alike two words are, for hints at what a user may have meant.
package edits

// most is how many bytes of a word are compared.
const most = 64

// Distance returns how many letters differ, are missing or too many, or have changed places with
// their neighbour, between the beginnings of two words: 64 bytes of each.
func Distance(a, b string) int {
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	var rows [most + 1][most + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1) //nolint:gosec // both are 2 at least
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
