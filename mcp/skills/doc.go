// Package skills answers one question: how does a server offer Agent Skills, and a client use them?
//
// It has the Skills extension of MCP (SEP-2640, io.modelcontextprotocol/skills; text of 2026-09-13,
// for revisions from 2026-07-28 on). A skill is a folder of files with a SKILL.md; its frontmatter
// says what the skill is called and is for. A server offers each file as a resource,
// skill://PATH/FILE, and lists the skills with the digests of all their files. Clients that do not
// know the extension see the resources.
//
//	root, err := os.OpenRoot("skills") // skills/pdf-processing/SKILL.md, …
//	refresh, err := skills.Add(s, root.FS(), nil)
//
// A client uses only what the server has listed: [Skill.Read] compares each file with the entry of
// its skill. What a skill says is untrusted text all the same.
package skills
