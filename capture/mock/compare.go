package mock

import "github.com/farcall-dev/farcall/capture/diff"

// Compare compares the answers of two captures, call by call: those to the same method and params,
// the first with the first. Ids, times, _meta of the params and the order of calls do not count.
// The numbers of the results are those of was, or of is for calls that only it has.
func Compare(was, is *Script, compare *diff.Comparer) *Report {
	report := &Report{}
	add := func(x *exchange, found ...diff.Finding) {
		report.Results = append(report.Results, Result{
			Seq: x.seq, Method: x.method, Name: x.name, Findings: found,
		})
	}
	for _, before := range was.order {
		var after []*exchange
		if same := is.calls[before.all[0].key]; same != nil {
			after = same.all
		}
		for i, x := range before.all {
			switch {
			case i < len(after):
				add(x, compare.Answers(x.method, x.response, after[i].response)...)
			default:
				add(x, diff.Finding{Rule: "call-removed", Level: diff.Unclear, Was: string(x.response)})
			}
		}
	}
	for _, after := range is.order {
		known := 0
		if same := was.calls[after.all[0].key]; same != nil {
			known = len(same.all)
		}
		for _, x := range after.all[min(known, len(after.all)):] {
			add(x, diff.Finding{Rule: "call-added", Level: diff.Compatible, Is: string(x.response)})
		}
	}
	return report
}
