/** The submission of a form: its progress and the errors of the platform by field. */
import { Failure } from "../api/client";

/** Return whether an error belongs to a field or to a part of its value. */
function isWithin(fault: string, field: string): boolean {
  return fault === field || fault.startsWith(`${field}.`) || fault.startsWith(`${field}[`);
}

export class Submission {
  busy = $state(false);
  error = $state.raw<unknown>(null);

  /** Return the error of a field, under the platform's name; undefined when the field is right. */
  fault(field: string): string | undefined {
    if (!(this.error instanceof Failure)) return undefined;
    return this.error.faults.find((fault) => fault.field === field)?.reason;
  }

  /** Return the error of a field or of a part of its value, such as an entry of a list. */
  faultWithin(field: string): string | undefined {
    if (!(this.error instanceof Failure)) return undefined;
    return this.fault(field) ?? this.error.faults.find((fault) => isWithin(fault.field, field))?.reason;
  }

  /** Return an error that is not shown at one of these fields, for the place above the buttons. */
  rest(fields: string[]): unknown {
    const { error } = this;
    if (!(error instanceof Failure) || !error.faults.length) return error;
    return error.faults.every((fault) => fields.some((field) => isWithin(fault.field, field))) ? null : error;
  }

  /** Run `work`; true when it did not fail. A second call while one runs does nothing. */
  async run(work: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.error = null;
    try {
      await work();
      return true;
    } catch (failure) {
      this.error = failure;
      return false;
    } finally {
      this.busy = false;
    }
  }
}
