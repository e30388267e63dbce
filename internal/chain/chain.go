// Package chain answers one question: in which order have things come, when any of them may go?
package chain

// A List has things in the order in which they came. The zero value is empty.
type List[T any] struct{ First, Last *Node[T] }

// A Node is the place of a thing in one List. It is part of the thing, so that what comes and goes
// again and again costs no allocation.
type Node[T any] struct {
	Of         *T
	Prev, Next *Node[T]
}

// Push puts a node at the end.
func (l *List[T]) Push(n *Node[T]) { l.Insert(n, l.Last) }

// Insert puts a node behind another one; nil: in front of all.
func (l *List[T]) Insert(n, behind *Node[T]) {
	n.Prev = behind
	at := l.after(behind)
	n.Next, *at = *at, n
	*l.before(n.Next) = n
}

// Remove takes out a node that is in the list.
func (l *List[T]) Remove(n *Node[T]) {
	*l.after(n.Prev), *l.before(n.Next) = n.Next, n.Prev
	n.Prev, n.Next = nil, nil
}

func (l *List[T]) after(n *Node[T]) **Node[T] {
	if n == nil {
		return &l.First
	}
	return &n.Next
}

func (l *List[T]) before(n *Node[T]) **Node[T] {
	if n == nil {
		return &l.Last
	}
	return &n.Prev
}
