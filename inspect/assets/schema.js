// What a JSON Schema says, as far as a form must know.

// resolve follows $ref within the document, and puts the parts of allOf together.
export function resolve(root, schema, depth = 0) {
  if (schema === true || schema === undefined || schema === null) return {};
  if (schema === false) return { not: {} };
  let s = schema;
  if (typeof s.$ref === 'string' && s.$ref.startsWith('#') && depth < 24) {
    let found;
    try {
      found = s.$ref === '#' ? root : s.$ref.slice(2).split('/').reduce((at, k) => at?.[decodeURIComponent(k).replaceAll('~1', '/').replaceAll('~0', '~')], root);
    } catch { /* not a reference that can be followed */ }
    const { $ref, ...rest } = s;
    s = { ...resolve(root, found, depth + 1), ...rest };
  }
  if (Array.isArray(s.allOf) && depth < 24) {
    const { allOf, ...rest } = s;
    s = allOf.map((p) => resolve(root, p, depth + 1)).concat(rest).reduce((a, b) => ({
      ...a, ...b,
      ...(a.properties || b.properties ? { properties: { ...a.properties, ...b.properties } } : {}),
      ...(a.required || b.required ? { required: [...new Set([...(a.required ?? []), ...(b.required ?? [])])] } : {}),
    }), {});
  }
  return s;
}

const isNull = (s) => s?.type === 'null' || s?.const === null;

// shape reads a schema: { s, kind, nullable, choices, variants }. kind is object, array, string, number, integer,
// boolean, choice, many, variants or any.
export function shape(root, schema) {
  let s = resolve(root, schema);
  let nullable = false;
  const parts = s.oneOf ?? s.anyOf;
  if (Array.isArray(parts)) {
    const some = parts.map((p) => resolve(root, p));
    const rest = some.filter((p) => !isNull(p));
    nullable = rest.length < some.length;
    if (rest.length && rest.every((p) => 'const' in p)) {
      return { s, kind: 'choice', nullable, choices: rest.map((p) => [p.const, p.title ?? p.description]) };
    }
    if (rest.length > 1) return { s, kind: 'variants', nullable, variants: rest };
    const { oneOf, anyOf, ...outer } = s;
    s = { ...rest[0], ...outer };
  }
  if (Array.isArray(s.type)) {
    nullable ||= s.type.includes('null');
    const types = s.type.filter((t) => t !== 'null');
    if (types.length > 1) return { s, kind: 'any', nullable };
    s = { ...s, type: types[0] };
  }
  if (s.nullable === true) nullable = true;
  if ('const' in s) return { s, kind: 'choice', nullable, choices: [[s.const, s.title]] };
  if (Array.isArray(s.enum)) {
    nullable ||= s.enum.includes(null);
    return { s, kind: 'choice', nullable, choices: s.enum.filter((v) => v !== null).map((v, i) => [v, s.enumNames?.[i]]) };
  }
  const type = s.type ?? (s.properties ? 'object' : s.items ? 'array' : undefined);
  if (type === 'array') {
    const of = shape(root, Array.isArray(s.items) ? true : s.items);
    if (of.kind === 'choice' && !s.prefixItems) return { s, kind: 'many', nullable, choices: of.choices };
    return { s, kind: s.prefixItems || Array.isArray(s.items) ? 'any' : 'array', nullable };
  }
  if (type === 'object') return { s, kind: s.properties || typeof s.additionalProperties === 'object' || s.additionalProperties === false ? 'object' : 'any', nullable, type };
  if (['string', 'number', 'integer', 'boolean'].includes(type)) return { s, kind: type, nullable };
  return { s, kind: 'any', nullable, type };
}

// typeName is a short name for a schema, for people.
export function typeName(root, schema, depth = 0) {
  if (depth > 3) return '…';
  const { s, kind, nullable, choices, variants } = shape(root, schema);
  const name = () => {
    switch (kind) {
      case 'choice': return choices.length > 6 ? `one of ${choices.length}` : choices.map(([v]) => JSON.stringify(v)).join(' | ');
      case 'many': return 'choices';
      case 'variants': return variants.map((v) => v.title ?? typeName(root, v, depth + 1)).join(' | ');
      case 'array': return `${typeName(root, s.items, depth + 1)}[]`;
      case 'any': return [s.type].flat().filter(Boolean).join(' | ') || 'any';
      default: return s.format ? `${kind}, ${s.format}` : kind;
    }
  };
  const text = name();
  return `${text.length > 80 ? `${text.slice(0, 80)}…` : text}${nullable ? ' | null' : ''}`;
}

// limits says what else must hold of a value.
export function limits(s) {
  const out = [];
  const range = (low, high, what) => {
    if (low !== undefined && high !== undefined) out.push(`${low} to ${high}${what}`);
    else if (low !== undefined) out.push(`at least ${low}${what}`);
    else if (high !== undefined) out.push(`at most ${high}${what}`);
  };
  range(s.minimum, s.maximum, '');
  if (s.exclusiveMinimum !== undefined) out.push(`more than ${s.exclusiveMinimum}`);
  if (s.exclusiveMaximum !== undefined) out.push(`less than ${s.exclusiveMaximum}`);
  range(s.minLength, s.maxLength, ' characters');
  range(s.minItems, s.maxItems, ' items');
  if (s.pattern) out.push(`like ${s.pattern}`);
  if (s.default !== undefined) out.push(`default ${JSON.stringify(s.default)}`);
  return out.join(', ');
}

// signature is a method or tool in one line.
export function signature(name, root, schema, output) {
  const { s } = shape(root, schema);
  const required = new Set(s.required ?? []);
  const params = Object.entries(s.properties ?? {}).map(([k, v]) => `${k}${required.has(k) ? '' : '?'}: ${typeName(root, v, 1)}`);
  return `${name}(${params.join(', ')})${output ? ` → ${typeName(output, output)}` : ''}`;
}
